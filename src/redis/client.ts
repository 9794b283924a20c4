import {
  type Commands,
  connectCommands,
  ended,
  isReadOnly,
  type RedisOptions,
  type Scripts,
} from './connection.ts';

/** Messages of ioredis for a command that it cannot send. */
const UNCONNECTED = /^(Stream isn't writeable|Cluster isn't ready|Connection is closed|Reached the max)/;

/** Words of ioredis behind an error of Sentinels, which differ from attempt to attempt. */
const NEXT_ATTEMPT = / and retry is disabled| Retrying from scratch after \d+ms\./;

/** Characters of a message, which can be megabytes of a server in the place of Redis: the log and `/readyz` repeat it. */
const MAX_MESSAGE = 300;

/** One connection for commands, or one to each node of a Cluster. It reconnects by itself. */
export class RedisClient {
  readonly commands: Commands;
  readonly #timeoutMs: number;
  /** Resolves when the first connection attempt has succeeded or failed. */
  readonly #known = Promise.withResolvers<void>();
  /** The last error of a connection: a failed command reports only that there is no connection. */
  #problem: string | undefined;

  constructor(options: RedisOptions, scripts: Scripts) {
    this.#timeoutMs = options.timeoutMs;
    this.commands = connectCommands(options, scripts);
    // An unreachable node or Sentinel does not mean that Redis is down: others may be reachable.
    this.commands
      .on('node error', (error: Error) => this.noteError(error))
      .on('sentinelError', (error: Error) => this.noteError(error));
    this.commands.on('ready', this.#known.resolve).on('error', (error: Error) => {
      this.noteError(error);
      this.#known.resolve();
    });
  }

  /** The reason why there is no connection, if known. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /**
   * Calls Redis. Gives up after `limitMs` milliseconds (`redis.timeout`), including the wait for the first
   * connection; the signal is then aborted, and no further command may be sent.
   * @throws Error without commands and their arguments
   */
  async call<T>(
    work: (commands: Commands, signal: AbortSignal) => Promise<T>,
    limitMs = this.#timeoutMs,
  ): Promise<T> {
    try {
      return await within(limitMs, async (signal) => {
        await this.#known.promise;
        signal.throwIfAborted();
        return await work(this.commands, signal);
      });
    } catch (error) {
      // It ends the connection: the reason for which there is none.
      if (error instanceof Error && isReadOnly(error)) this.noteError(error);
      throw new Error(this.#describe(error));
    }
  }

  noteError(error: Error): void {
    const message = withoutArguments(error);
    // 'close' comes after the error that caused it: keep the first message.
    if (this.#problem === undefined || !UNCONNECTED.test(message)) this.#problem = message;
  }

  forgetErrors(): void {
    this.#problem = undefined;
  }

  /** Resolves when the connections have ended. */
  async close(): Promise<void> {
    this.#known.resolve();
    await ended(this.commands);
  }

  #describe(error: unknown): string {
    const message = withoutArguments(error);
    return UNCONNECTED.test(message) ? (this.#problem ?? 'there is no connection to Redis') : message;
  }
}

/**
 * Returns the message without arguments: errors of ioredis carry the command, which may be AUTH, also at
 * the message's end.
 */
function withoutArguments(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ('lastNodeError' in error && error.lastNodeError instanceof Error)
    return withoutArguments(error.lastNodeError);
  const [message = ''] = error.message.split(', with args');
  return message === '' && 'code' in error
    ? String(error.code)
    : message.replace(NEXT_ATTEMPT, '').slice(0, MAX_MESSAGE);
}

/** Limits work to `ms` milliseconds. @throws Error after that time, with the signal aborted. */
async function within<T>(ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const late = Promise.withResolvers<never>();
  const giveUp = (): void => {
    controller.abort();
    late.reject(new Error(`Redis did not answer within ${Math.round(ms)} ms`));
  };
  let turn: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    // If the event loop was blocked, the reply may have arrived and is read first.
    turn = setImmediate(giveUp);
  }, ms);
  try {
    return await Promise.race([work(controller.signal), late.promise]);
  } finally {
    clearTimeout(timer);
    clearImmediate(turn);
  }
}
