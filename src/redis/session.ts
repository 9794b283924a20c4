import type { ClientContext, Redis, Result } from 'ioredis';
import { monotonicClock } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import { isolate } from '../base/report-error.ts';
import { Throttle } from '../base/throttle.ts';
import { RedisClient } from './client.ts';
import { type Commands, connectMessages, ended, type RedisOptions, type Scripts } from './connection.ts';

/** Interval of the heartbeat, in milliseconds. */
const BEAT_MS = 1_000;
/** Lifetime of a pulse key in Redis, in milliseconds. */
const PULSE_MS = 10_000;

/** Reasons that are passed on in one outage. */
const MAX_REASONS = 8;
/** Pause between two attempts to subscribe, in milliseconds. */
const RETRY_MS = 200;

/**
 * (pulse key; ms, channel, message) → 1 if the last pulse still exists. Fails unless Redis takes writes and
 * passes on messages.
 */
const beatPulse = {
  numberOfKeys: 1,
  lua: `
local wasThere = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return wasThere`,
};

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    beatPulse: (...args: (string | number)[]) => Result<unknown, Context>;
  }
}

export interface SessionOptions {
  readonly redis: RedisOptions;
  /** Scripts of the caller's commands. */
  readonly scripts: Scripts;
  /** Channel of all processes. */
  readonly channel: string;
  /** Channel of this process only. */
  readonly ownChannel: string;
  /** Keys whose nodes must take writes for Redis to be up; in a Cluster one for each master in use. */
  readonly pulseKeys: (commands: Commands) => readonly string[];
  /**
   * Called on each change, and first when the state is known; `reason` is set if Redis is down. Called again for another
   * reason, throttled: a connection that breaks comes before a password that is refused. Once for each reason in an
   * outage, and not for other numbers in it: those of the nodes of a Cluster alternate.
   */
  readonly onUp: (up: boolean, reason: string | undefined) => void;
  readonly onMessage: (message: string) => void;
  /**
   * Called when Redis is up after messages or calls may have been missed, or its data may have been lost.
   */
  readonly onRejoin: () => void;
}

/**
 * A client, a subscription, and a heartbeat through both. The heartbeat shows that Redis is reachable,
 * takes writes and passes on messages.
 */
export class RedisSession {
  readonly #options: SessionOptions;
  readonly #client: RedisClient;
  /** The connection for messages, replaced by a new one whenever it ends. */
  #messages: Redis;
  #subscribed = false;
  #retry: NodeJS.Timeout | undefined;
  readonly #timer: NodeJS.Timeout;
  readonly #known = Promise.withResolvers<void>();
  #up: boolean | undefined;
  /** Those that were passed on in this outage, without numbers. */
  readonly #reasons = new Set<string>();
  readonly #throttle = new Throttle(monotonicClock, 1);
  #mayHaveMissed = true;
  /** Keys that received the last pulse. */
  #beaten: ReadonlySet<string> = new Set();
  #beating = false;
  #beatAgain = false;
  #echo = Promise.withResolvers<void>();
  #closed = false;

  constructor(options: SessionOptions) {
    const { redis, scripts } = options;
    this.#options = options;
    this.#client = new RedisClient(redis, { ...scripts, beatPulse });
    const { commands } = this.#client;
    commands.on('error', () => {
      if (this.#up === undefined) this.#set(false);
      this.#look();
    });
    commands.on('ready', () => this.#look()).on('close', () => this.#look());
    this.#messages = this.#subscribe();
    this.#timer = setInterval(() => void this.#beat(), BEAT_MS);
  }

  /** Does the same as `RedisClient.call`. After a failure a heartbeat checks if Redis is reachable. */
  async call<T>(work: (commands: Commands, signal: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await this.#client.call(async (commands, signal) => {
        await this.#known.promise;
        signal.throwIfAborted();
        return await work(commands, signal);
      });
    } catch (error) {
      // Other processes may not have received the call's message.
      this.#mayHaveMissed = true;
      if (this.#up === true) void this.#beat();
      throw error;
    }
  }

  /** Resolves when the connections have ended. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    clearTimeout(this.#retry);
    this.#known.resolve();
    await Promise.all([ended(this.#messages), this.#client.close()]);
  }

  #subscribe(): Redis {
    const { redis, channel, ownChannel, onMessage } = this.#options;
    const connection = connectMessages(redis, this.#client.commands);
    connection.on('error', (error: Error) => this.#client.noteError(error));
    // Called by the parser of ioredis: an error would leave it between two replies.
    connection.on('message', (at: string, message: string) =>
      at === ownChannel ? this.#echo.resolve() : isolate(() => onMessage(message)),
    );
    connection.once('ready', async () => {
      try {
        await connection.subscribe(channel, ownChannel);
        this.#subscribed = true;
        // Messages since the end of the last subscription are lost.
        this.#mayHaveMissed = true;
        this.#look();
      } catch (error) {
        this.#client.noteError(error instanceof Error ? error : new Error(String(error)));
        connection.disconnect();
      }
    });
    connection.once('end', () => {
      this.#subscribed = false;
      if (this.#closed) return;
      this.#retry = setTimeout(() => {
        this.#messages = this.#subscribe();
      }, RETRY_MS);
    });
    return connection;
  }

  /** Called when a connection changes its state. */
  #look(): void {
    const complete = this.#client.commands.status === 'ready' && this.#subscribed;
    if (complete || this.#up === true) void this.#beat();
  }

  async #beat(): Promise<void> {
    this.#beatAgain = this.#beating;
    if (this.#beating || this.#closed) return;
    this.#beating = true;
    try {
      await this.#client.call((commands) => this.#pulse(commands));
      this.#client.forgetErrors();
      this.#set(true);
    } catch (error) {
      this.#set(false, messageOf(error));
    }
    this.#beating = false;
    if (this.#beatAgain) await this.#beat();
  }

  async #pulse(commands: Commands): Promise<void> {
    const { pulseKeys, redis } = this.#options;
    this.#echo = Promise.withResolvers<void>();
    const keys = pulseKeys(commands);
    await Promise.all(keys.map((key) => this.#beatOn(commands, key)));
    this.#beaten = new Set(keys);
    // A half-open connection would stay subscribed forever without messages. It may have been replaced when this is due.
    const messages = this.#messages;
    const deaf = setTimeout(() => messages.disconnect(), redis.timeoutMs);
    await this.#echo.promise.finally(() => clearTimeout(deaf));
  }

  /** Writes a pulse. If the last one disappeared early, all data was lost, as after FLUSHALL. */
  async #beatOn(commands: Commands, key: string): Promise<void> {
    const wasThere = await commands.beatPulse(key, PULSE_MS, this.#options.ownChannel, '');
    if (this.#beaten.has(key) && wasThere !== 1) this.#mayHaveMissed = true;
  }

  #set(up: boolean, reason = this.#client.problem): void {
    if (this.#closed) return;
    const { onUp, onRejoin } = this.#options;
    const changed = this.#up !== up;
    this.#up = up;
    this.#known.resolve();
    if (up) this.#reasons.clear();
    const passesReason = !up && this.#passesReason(reason);
    if (changed || passesReason) isolate(() => onUp(up, up ? undefined : reason));
    if (!up || !(changed || this.#mayHaveMissed)) return;
    this.#mayHaveMissed = false;
    isolate(onRejoin);
  }

  /** Notes the reason of an outage if it is to be passed on. The first always is. */
  #passesReason(reason = ''): boolean {
    const kind = reason.replace(/\d+/g, '');
    const { size } = this.#reasons;
    if (this.#reasons.has(kind) || size >= MAX_REASONS) return false;
    if (size > 0 && this.#throttle.suppresses('')) return false;
    this.#throttle.admit('');
    this.#reasons.add(kind);
    return true;
  }
}
