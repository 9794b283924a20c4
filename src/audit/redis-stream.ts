import type { ClientContext, Cluster, Redis, Result } from 'ioredis';
import { z } from 'zod';
import { within } from '../base/deadline.ts';
import { formatHead, type Head } from './seal.ts';
import type { NumberedLine } from './sealed-batches.ts';

/** The longest that an answer of Redis is waited for, in milliseconds. */
const CALL_MS = 1_000;
/** How long Redis holds a question for entries when there are none, in milliseconds; less than silence is allowed. */
const BLOCK_MS = 400;
/** Entries that are read at once. */
const READ_COUNT = 500;

export interface StreamOptions {
  /** Opens a connection that comes back by itself and queues nothing while it is away. */
  readonly connect: () => Redis | Cluster;
  /** Before every key. */
  readonly keyPrefix: string;
}

/** How far the stream has a replica's log: its last record, and the last seal at or before that. */
export interface StreamPosition {
  readonly seq: number;
  /** Empty `hmac`: of no seal yet. */
  readonly seal: { readonly last: number; readonly hmac: string };
}

/** An entry that is a record, or the end of a chain. */
export interface StreamEntry {
  readonly id: string;
  readonly replica: string;
  readonly seq: number;
  /** Undefined: it is the end of a chain. */
  readonly record: string | undefined;
  readonly head: string | undefined;
}

/**
 * (stream, positions; replica, position expected, position then, most entries, head or '', number and line of each
 * record) → the position that there is now. Nothing is added where another one than expected was found, so a call
 * that comes twice, or too late, adds nothing.
 */
const appendRecords = {
  numberOfKeys: 2,
  lua: `
local actual = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if actual ~= ARGV[2] then return actual end
for at = 6, #ARGV, 2 do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], '*', 'replica', ARGV[1], 'seq', ARGV[at], 'record', ARGV[at + 1])
end
if ARGV[5] ~= '' then
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], '*', 'replica', ARGV[1], 'seq', ARGV[#ARGV - 1], 'head', ARGV[5])
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return ARGV[3]`,
};

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    appendRecords: (...args: (string | number)[]) => Result<unknown, Context>;
  }
}

const entries = z.array(z.tuple([z.string(), z.array(z.string()).nullable()]));
const reply = z.array(z.tuple([z.string(), entries])).nullable();

/** The stream that the records of all replicas go to, and come from. All calls reject while Redis is away. */
export class RedisStream {
  readonly #connection: Redis | Cluster;
  readonly #stream: string;
  readonly #positions: string;
  /** Resolves when it is known whether there is a connection. */
  readonly #known: Promise<void>;
  /** The last error of the connection: a command says only that there is none. */
  #problem = 'there is no connection to Redis';

  constructor({ connect, keyPrefix }: StreamOptions) {
    // In a Cluster both are on one node.
    this.#stream = `${keyPrefix}:v1:{audit}:records`;
    this.#positions = `${keyPrefix}:v1:{audit}:positions`;
    this.#connection = connect();
    const known = Promise.withResolvers<void>();
    this.#known = known.promise;
    this.#connection.on('ready', known.resolve).on('error', (error: Error) => {
      known.resolve();
      // What the library adds about the command may hold AUTH.
      [this.#problem = ''] = error.message.split(', with args');
    });
    this.#connection.defineCommand('appendRecords', appendRecords);
  }

  /** Undefined: it knows nothing of this replica. */
  async position(replica: string): Promise<StreamPosition | undefined> {
    return parsePosition(await this.#call((redis) => redis.hget(this.#positions, replica)));
  }

  /** The last seals of all replicas. */
  async heads(): Promise<Head[]> {
    const all = await this.#call((redis) => redis.hgetall(this.#positions));
    return Object.entries(all).flatMap(([replica, text]): Head[] => {
      const { last = 0, hmac = '' } = parsePosition(text)?.seal ?? {};
      return hmac === '' ? [] : [{ replica, seq: last, hmac }];
    });
  }

  /** Adds records after `from`, at least one; resolves to the position there is then: `to`, or where to go on. */
  async append(
    replica: string,
    { from, to, records, anchor, maxLength }: Addition,
  ): Promise<StreamPosition | undefined> {
    const head = anchor ? formatHead({ replica, seq: to.seal.last, hmac: to.seal.hmac }) : '';
    const lines = records.flatMap(({ seq, line }) => [seq, line]);
    const [before, after] = [formatPosition(from), formatPosition(to)];
    const answer = await this.#call((redis) =>
      redis.appendRecords(this.#stream, this.#positions, replica, before, after, maxLength, head, ...lines),
    );
    return parsePosition(String(answer));
  }

  /** Makes the group, which begins with the oldest entry. */
  async openGroup(group: string): Promise<void> {
    try {
      await this.#call((redis) => redis.xgroup('CREATE', this.#stream, group, '0', 'MKSTREAM'));
    } catch (error) {
      if (!String(error).includes('BUSYGROUP')) throw error;
    }
  }

  /** Entries for one of the group: those it took before and did not acknowledge, or new ones. None after a while. */
  async read(group: string, consumer: string, which: 'taken' | 'new'): Promise<StreamEntry[]> {
    const from = which === 'taken' ? '0' : '>';
    const answer = await this.#call((redis) =>
      redis.xreadgroup(
        'GROUP',
        group,
        consumer,
        'COUNT',
        READ_COUNT,
        'BLOCK',
        BLOCK_MS,
        'STREAMS',
        this.#stream,
        from,
      ),
    );
    return (reply.parse(answer)?.[0]?.[1] ?? []).map(([id, fields]) => entryOf(id, fields ?? []));
  }

  async acknowledge(group: string, ids: readonly string[]): Promise<void> {
    await this.#call((redis) => redis.xack(this.#stream, group, ...ids));
  }

  close(): void {
    this.#connection.disconnect();
  }

  async #call<T>(work: (redis: Redis | Cluster) => Promise<T>): Promise<T> {
    try {
      return await within(CALL_MS, async (signal) => {
        await this.#known;
        signal.throwIfAborted();
        return await work(this.#connection);
      });
    } catch (error) {
      const [message = ''] = String(
        error instanceof Object && 'message' in error ? error.message : error,
      ).split(', with args');
      throw new Error(UNCONNECTED.test(message) ? this.#problem : message);
    }
  }
}

/** What the client library says of a command that it cannot send. */
const UNCONNECTED = /^(Stream isn't writeable|Cluster isn't ready|Connection is closed|Reached the max)/;

export interface Addition {
  /** Undefined: the stream knows nothing of this replica. */
  readonly from: StreamPosition | undefined;
  readonly to: StreamPosition;
  readonly records: readonly NumberedLine[];
  /** Whether the end of the chain becomes an entry, too. */
  readonly anchor: boolean;
  /** Entries that the stream keeps, of all replicas; older ones go. */
  readonly maxLength: number;
}

function formatPosition(position: StreamPosition | undefined): string {
  return position === undefined ? '' : `${position.seq} ${position.seal.last} ${position.seal.hmac}`;
}

function parsePosition(text: string | null): StreamPosition | undefined {
  const [, seq, last, hmac = ''] = /^(\d{1,15}) (\d{1,15}) ([\w-]{43})?$/.exec(text ?? '') ?? [];
  return seq === undefined ? undefined : { seq: Number(seq), seal: { last: Number(last), hmac } };
}

/** Of an entry that is gone from the stream only its id is left. */
function entryOf(id: string, fields: readonly string[]): StreamEntry {
  const named = new Map<string, string>();
  for (let at = 0; at + 1 < fields.length; at += 2) named.set(fields[at] ?? '', fields[at + 1] ?? '');
  return {
    id,
    replica: named.get('replica') ?? '',
    seq: Number(named.get('seq') ?? 0),
    record: named.get('record'),
    head: named.get('head'),
  };
}
