import { within } from '../base/deadline.ts';
import { isolate } from '../base/report-error.ts';
import { type Commands, connectCommands, connectMessages, type RedisOptions } from './redis-connection.ts';
import { ended, RedisMessages } from './redis-messages.ts';

/** How often it is looked whether Redis is there, in milliseconds. */
const BEAT_MS = 1_000;
/** How long a pulse stays in Redis, in milliseconds. */
const PULSE_MS = 10_000;

export interface LinkOptions {
  readonly redis: RedisOptions;
  /** Where everybody hears everybody. */
  readonly channel: string;
  /** Where this process hears itself. */
  readonly ownChannel: string;
  /** Keys whose nodes have to take writes for Redis to be up, in a Cluster one for each hash tag in use. */
  readonly pulseKeys: () => readonly string[];
  /** Called on each change, and once with the first that is known; `reason` says why it is down. */
  readonly onUp: (up: boolean, reason: string | undefined) => void;
  readonly onMessage: (message: string) => void;
  /** Redis is there, and messages may have been missed or what it held be lost. */
  readonly onRejoin: () => void;
}

/**
 * The connections to Redis: one for commands, one for messages, and a pulse through both of them that says
 * whether Redis is there, takes writes and passes messages on.
 */
export class RedisLink {
  readonly #options: LinkOptions;
  readonly #commands: Commands;
  readonly #messages: RedisMessages;
  readonly #timer: NodeJS.Timeout;
  readonly #known = Promise.withResolvers<void>();
  #up: boolean | undefined;
  #missedMessages = true;
  /** Keys that have had a pulse. */
  readonly #beaten = new Set<string>();
  #beating = false;
  #beatAgain = false;
  #echo = Promise.withResolvers<void>();
  /** The last error of a connection: a command says only that there is none. */
  #problem: string | undefined;
  #closed = false;

  constructor(options: LinkOptions) {
    const { redis, channel, ownChannel } = options;
    this.#options = options;
    const note = (error: Error): void => {
      const message = plain(error);
      // That it was closed follows why it was.
      if (this.#problem === undefined || !UNCONNECTED.test(message)) this.#problem = message;
    };
    this.#commands = connectCommands(redis);
    // One node or one Sentinel that cannot be reached is no verdict: others can.
    this.#commands.on('node error', note).on('sentinelError', note);
    this.#commands.on('error', (error: Error) => {
      note(error);
      if (this.#up === undefined) this.#set(false);
      this.#look();
    });
    this.#commands.on('ready', () => this.#look()).on('close', () => this.#look());
    this.#messages = new RedisMessages({
      connect: () => connectMessages(redis, this.#commands),
      channels: [channel, ownChannel],
      // The parser of the library calls this: an error would leave it between two replies.
      onMessage: (at, message) =>
        at === ownChannel ? this.#echo.resolve() : isolate(() => options.onMessage(message)),
      onSubscribed: () => {
        this.#missedMessages = true;
        this.#look();
      },
      onError: note,
    });
    this.#timer = setInterval(() => void this.#beat(), BEAT_MS);
  }

  /**
   * Does something with Redis, within `redis.timeoutMs`; at the start that includes the wait for the first
   * connection. After that the signal is aborted. Rejects with an Error that holds neither commands nor
   * their arguments.
   */
  async call<T>(work: (commands: Commands, signal: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await within(this.#options.redis.timeoutMs, async (signal) => {
        await this.#known.promise;
        signal.throwIfAborted();
        return await work(this.#commands, signal);
      });
    } catch (error) {
      if (this.#up === true) void this.#beat();
      throw new Error(this.#describe(error));
    }
  }

  /** Resolves when the connections have ended. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    this.#known.resolve();
    await Promise.all([this.#messages.close(), ended(this.#commands)]);
  }

  /** Something about the connections has changed. */
  #look(): void {
    const complete = this.#commands.status === 'ready' && this.#messages.subscribed;
    if (complete || this.#up === true) void this.#beat();
  }

  async #beat(): Promise<void> {
    this.#beatAgain = this.#beating;
    if (this.#beating || this.#closed) return;
    this.#beating = true;
    try {
      await within(this.#options.redis.timeoutMs, () => this.#pulse());
      this.#problem = undefined;
      this.#set(true);
    } catch (error) {
      this.#set(false, this.#describe(error));
    }
    this.#beating = false;
    if (this.#beatAgain) await this.#beat();
  }

  async #pulse(): Promise<void> {
    const { pulseKeys } = this.#options;
    this.#echo = Promise.withResolvers<void>();
    await Promise.all(pulseKeys().map((key) => this.#beatOn(key)));
    // A connection whose other end is gone without a word stays subscribed for ever.
    const deaf = setTimeout(() => this.#messages.renew(), this.#options.redis.timeoutMs);
    await this.#echo.promise.finally(() => clearTimeout(deaf));
  }

  /** A pulse that is gone before its time was removed with everything else, as by FLUSHALL. */
  async #beatOn(key: string): Promise<void> {
    const wasThere = await this.#commands.beatPulse(key, PULSE_MS, this.#options.ownChannel, '');
    if (this.#beaten.has(key) && wasThere !== 1) this.#missedMessages = true;
    this.#beaten.add(key);
  }

  #set(up: boolean, reason = this.#problem): void {
    if (this.#closed) return;
    const { onUp, onRejoin } = this.#options;
    const changed = this.#up !== up;
    this.#up = up;
    this.#known.resolve();
    if (changed) isolate(() => onUp(up, up ? undefined : reason));
    if (!up || !(changed || this.#missedMessages)) return;
    this.#missedMessages = false;
    isolate(onRejoin);
  }

  /** That there is no connection says less than why there is none. */
  #describe(error: unknown): string {
    const message = plain(error);
    return UNCONNECTED.test(message) ? (this.#problem ?? 'there is no connection to Redis') : message;
  }
}

/** What the client library says of a command that it cannot send. */
const UNCONNECTED = /^(Stream isn't writeable|Cluster isn't ready|Connection is closed|Reached the max)/;

/** The message only: errors of the library carry the command, and that may be AUTH; so may the end of the message. */
function plain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ('lastNodeError' in error && error.lastNodeError instanceof Error) return plain(error.lastNodeError);
  const [message = ''] = error.message.split(', with args');
  return message === '' && 'code' in error ? String(error.code) : message;
}
