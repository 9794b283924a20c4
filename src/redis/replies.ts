import type { createRequire } from 'node:module';
import type { Redis } from 'ioredis';

/** Maximum size of a reply or message in bytes: more than a collector of audit records reads at once. */
export const MAX_REPLY = 16 * 2 ** 20;
/** Maximum number of elements that a reply may have announced and not brought yet. */
const MAX_MISSING = 2 ** 16;
/** Maximum time from the first to the last chunk of a reply, in milliseconds. */
const REPLY_MS = 10_000;
/**
 * Maximum number of commands that wait for their replies for longer than `BUSY_MS`: callers give up after a time, ioredis
 * does not. For a moment there may be more, since all limits of a configuration can be reported at once.
 */
const MAX_WAITING = 16_384;
const BUSY_MS = 10_000;

const CR = 13;
const TYPES = '+-:$*';
const COUNT = /^(?:-1|\d{1,10})$/;
/** Characters that are kept of a line: more than a type and a count have. */
const MAX_HEAD = 16;

/** Cuts what a server sends (RESP2) into replies. */
class ReplyReader {
  /** Elements that the reply has yet to bring; 0 between two replies. */
  #missing = 0;
  /** Size of the reply so far, in bytes. */
  #size = 0;
  /** The beginning of a line whose end has not come. */
  #head = '';
  /** Bytes before the next line. */
  #skip = 0;
  #parts: Buffer[] = [];
  /** When the first of several chunks of the reply came. */
  #begun = 0;

  /** Yields each reply that ends in this chunk. @throws Error if a reply has no such form, is too large, or too slow */
  *read(chunk: Buffer): Generator<Buffer, void, undefined> {
    let start = 0;
    while (start < chunk.length) {
      const end = this.#advance(chunk, start);
      const part = chunk.subarray(start, end);
      start = end;
      this.#size += part.length;
      if (this.#size > MAX_REPLY) throw tooLarge();
      this.#parts.push(part);
      if (this.#missing + this.#skip > 0) {
        const now = performance.now();
        if (this.#parts.length === 1) this.#begun = now;
        if (now - this.#begun > REPLY_MS)
          throw new Error(`a reply has not ended after ${REPLY_MS / 1_000} s`);
        return;
      }
      const reply = this.#parts.length === 1 ? part : Buffer.concat(this.#parts);
      this.#parts = [];
      this.#size = 0;
      yield reply;
    }
  }

  /** Returns where the reply ends, or the end of the chunk if that comes first. */
  #advance(chunk: Buffer, start: number): number {
    let at = start;
    if (this.#size === 0) this.#missing = 1;
    while (at < chunk.length) {
      const skipped = Math.min(this.#skip, chunk.length - at);
      this.#skip -= skipped;
      at += skipped;
      if (this.#missing === 0 && this.#skip === 0) return at;
      if (at === chunk.length) return at;
      const cr = chunk.indexOf(CR, at);
      const end = cr < 0 ? chunk.length : cr;
      if (this.#head.length < MAX_HEAD)
        this.#head += chunk.toString('latin1', at, Math.min(end, at + MAX_HEAD));
      if (cr < 0) return end;
      this.#endLine();
      at = cr + 1;
    }
    return at;
  }

  /** Notes what follows the line. */
  #endLine(): void {
    const [type = '', count] = [this.#head.slice(0, 1), this.#head.slice(1)];
    this.#head = '';
    this.#missing -= 1;
    // The line feed.
    this.#skip = 1;
    if (type === '' || !TYPES.includes(type)) throw notRedis();
    if (type !== '$' && type !== '*') return;
    if (!COUNT.test(count)) throw notRedis();
    const announced = Math.max(0, Number(count));
    if (type === '*') this.#missing += announced;
    // The text and its end; -1 is no text.
    else if (count !== '-1') this.#skip += announced + 2;
    // An array takes the memory that it is announced with before anything of it has come.
    if (this.#skip > MAX_REPLY || this.#missing > MAX_MISSING) throw tooLarge();
  }
}

function tooLarge(): Error {
  return new Error(`a reply has more than ${MAX_REPLY / 2 ** 20} MiB or ${MAX_MISSING} elements`);
}

function notRedis(): Error {
  return new Error('a reply is not of the protocol of Redis');
}

/** The class of ioredis that handles the replies of a socket. */
type ReplyHandler = new (connection: Redis, options: unknown) => object;

/**
 * Puts bounds between each socket of ioredis and its parser, which would keep a reply without end, and reserve whatever
 * memory a reply announces. A connection whose replies break them is closed, and opened again. It is the only place that
 * all connections pass: ioredis opens those to Sentinels, and some to nodes of a Cluster, by itself.
 */
export function boundReplies(require: ReturnType<typeof createRequire>): void {
  const module: { default: ReplyHandler } = require('ioredis/built/DataHandler');
  module.default = class extends module.default {
    readonly #connection: Redis;
    /** Since when more than `MAX_WAITING` commands wait; undefined: they do not. */
    #busySince: number | undefined;

    constructor(connection: Redis, options: unknown) {
      super(connection, options);
      this.#connection = connection;
      const { stream } = connection;
      // All of the gateway's speak RESP2. Others in this process, as those of a test, may not.
      if (connection.options.protocol !== 2) return;
      const [parse] = stream.listeners('data') as ((reply: Buffer) => void)[];
      if (parse === undefined) throw new Error('ioredis does not listen to its socket');
      const reader = new ReplyReader();
      stream.off('data', parse);
      stream.on('data', (chunk: Buffer) => {
        this.dispatch(() => {
          for (const reply of reader.read(chunk)) {
            parse(reply);
            if (stream.destroyed) return;
          }
          this.#checkWaiting();
        });
      });
    }

    /** @throws Error if too many commands have waited for too long */
    #checkWaiting(): void {
      if (this.#connection.commandQueue.length <= MAX_WAITING) {
        this.#busySince = undefined;
        return;
      }
      const now = performance.now();
      this.#busySince ??= now;
      if (now - this.#busySince > BUSY_MS) throw new Error('Redis is slower than it is asked');
    }

    /** Called by ioredis with what handles a reply, which fails if the reply has not the form of one to its command. */
    dispatch(handle: () => void): void {
      try {
        handle();
      } catch (error) {
        this.#connection.stream.destroy(error instanceof Error ? error : undefined);
      }
    }

    /** Called by ioredis for the command that a reply is to. Without one, later replies would go to wrong commands. */
    shiftCommand(): unknown {
      const command = this.#connection.commandQueue.shift();
      if (command === undefined) this.#connection.stream.destroy(new Error('a reply came without a command'));
      return command;
    }
  };
}
