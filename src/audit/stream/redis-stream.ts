import { createHmac, timingSafeEqual } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientContext, Result } from 'ioredis';
import { z } from 'zod';
import { RedisClient } from '../../redis/client.ts';
import type { RedisOptions } from '../../redis/connection.ts';
import type { AuditKeys } from '../keys.ts';
import type { SealedBatch } from '../reader/sealed-batches.ts';
import { type Head, LARGEST_BATCH, sealLine } from '../seal.ts';

/** The longest that an answer of Redis is waited for, in milliseconds; and more for each of these bytes. */
const CALL_MS = 1_000;
const CALL_MS_FOR = 10 * 1024;
/** Pause after Redis had no entries, in milliseconds. */
const PAUSE_MS = 200;
/** Entries that are read at once, and bytes of them beyond which the others wait. */
const READ_COUNT = 250;
const READ_BYTES = 8 * 1024 * 1024;

/** How far the stream has a replica's log: the last seal in it. */
export interface StreamPosition {
  /** Number of the last record. */
  readonly seq: number;
  readonly hmac: string;
}

/** What Redis holds as a position. */
export interface FoundPosition {
  /** As it stands there; empty: nothing. */
  readonly text: string;
  /** Undefined: there is none that one of the keys made. */
  readonly position: StreamPosition | undefined;
}

/** An entry as it was found, whoever wrote it. */
export interface StreamEntry {
  readonly id: string;
  readonly replica: string;
  /** Lines of the log, each with its end; empty with `tooLarge`. */
  readonly lines: string;
  /** The line that seals them, without its end. */
  readonly seal: string;
  /** `hmac` of the seal before. */
  readonly previous: string;
  /** Whether the end of the chain is to be told. */
  readonly anchor: boolean;
  readonly tooLarge: boolean;
  /** It was trimmed from the stream after it had been taken. */
  readonly gone: boolean;
}

/** Entries, and whether there are some that were taken and not given yet. */
export interface StreamRead {
  readonly entries: readonly StreamEntry[];
  readonly more: boolean;
}

/**
 * (stream, positions; replica, position expected, position then, most records, for each batch: records, lines, seal,
 * seal before, anchor) → the position that there is now. Nothing is added where another one than expected was found, so
 * a call that comes twice, or too late, adds nothing. The id of an entry counts the lines that were ever added, so that
 * the stream keeps so many of them, and not so many batches.
 */
const appendBatches = {
  numberOfKeys: 2,
  lua: `
local actual = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if actual ~= ARGV[2] then return actual end
local count = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then count = tonumber(string.match(info[at + 1], '^%d+')) end
  end
end
for at = 5, #ARGV, 5 do
  count = count + tonumber(ARGV[at]) + 1
  local oldest = string.format('%.0f', math.max(0, count - tonumber(ARGV[4])))
  redis.call('XADD', KEYS[1], 'MINID', '~', oldest, string.format('%.0f-0', count), 'replica', ARGV[1],
    'lines', ARGV[at + 1], 'seal', ARGV[at + 2], 'previous', ARGV[at + 3], 'anchor', ARGV[at + 4])
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return ARGV[3]`,
};

/**
 * (stream; group, consumer, '0' or '>', most entries, bytes of one entry, bytes of all) → id, fields, and whether they
 * were left out, of each: since it is too large, or since there were enough ('later'). Who can write to Redis must not
 * fill the memory of who reads.
 */
const readBatches = {
  numberOfKeys: 1,
  lua: `
local found = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[4], 'STREAMS', KEYS[1], ARGV[3])
if not found then return {} end
local result, total = {}, 0
for _, entry in ipairs(found[1][2]) do
  local fields, size, left = entry[2] or {}, 0, ''
  for _, field in ipairs(fields) do size = size + #field end
  if size > tonumber(ARGV[5]) then
    fields, left = {}, 'tooLarge'
  elseif total > 0 and total + size > tonumber(ARGV[6]) then
    fields, left = {}, 'later'
  else
    total = total + size
  end
  table.insert(result, { entry[1], fields, left })
end
return result`,
};

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    appendBatches: (...args: (string | number)[]) => Result<unknown, Context>;
    readBatches: (...args: (string | number)[]) => Result<unknown, Context>;
  }
}

const reply = z.array(z.tuple([z.string(), z.array(z.string()), z.enum(['', 'tooLarge', 'later'])]));

/**
 * The stream that the records of all replicas go to, and come from. Each entry is a batch as it stands in the log, with
 * its seal, so who has the key can tell whether a gateway wrote it. Positions carry an HMAC of their own. Who can write
 * to Redis without the key can remove entries, which leaves a gap that is told, bring back old ones, which are known,
 * and set a position back, so that records come again; no more. All calls reject while Redis is away.
 */
export class RedisStream {
  readonly #client: RedisClient;
  readonly #stream: string;
  readonly #positions: string;
  readonly #keys: readonly [AuditKeys, ...AuditKeys[]];

  /** `keys`: the one in use first, and those that sealed earlier records. */
  constructor(redis: RedisOptions, keys: readonly [AuditKeys, ...AuditKeys[]]) {
    this.#keys = keys;
    // In a Cluster both are on one node. Version 1 had an entry for each record, and no seals.
    this.#stream = `${redis.keyPrefix}:v2:{audit}:records`;
    this.#positions = `${redis.keyPrefix}:v2:{audit}:positions`;
    this.#client = new RedisClient({ ...redis, timeoutMs: CALL_MS }, { appendBatches, readBatches });
  }

  async position(replica: string): Promise<FoundPosition> {
    const text = await this.#client.call((redis) => redis.hget(this.#positions, replica));
    return { text: text ?? '', position: this.#parsePosition(replica, text ?? '') };
  }

  /** The last seals of all replicas; and the replicas whose position no key made. */
  async heads(): Promise<{ readonly heads: readonly Head[]; readonly forged: readonly string[] }> {
    const all = await this.#client.call((redis) => redis.hgetall(this.#positions));
    const heads: Head[] = [];
    const forged: string[] = [];
    for (const [replica, text] of Object.entries(all)) {
      const position = this.#parsePosition(replica, text);
      if (position === undefined) forged.push(replica);
      else heads.push({ replica, ...position });
    }
    return { heads, forged };
  }

  /** As Redis holds it. */
  formatPosition(replica: string, { seq, hmac }: StreamPosition): string {
    return `${seq} ${hmac} ${positionHmac(this.#keys[0], replica, { seq, hmac })}`;
  }

  /** Adds batches if the position is the text `from`; resolves to the text that is there then: that of `to`, if they were. */
  async append(replica: string, { from, to, batches, anchor, maxLength }: Addition): Promise<string> {
    const last = batches.length - 1;
    const entries = batches.flatMap(({ records, lines, seal, previous }, index) => [
      records.length,
      lines,
      sealLine(seal).trimEnd(),
      previous,
      anchor && index === last ? '1' : '',
    ]);
    const bytes = batches.reduce((sum, { lines }) => sum + lines.length, 0);
    const answer = await this.#client.call(
      (redis) =>
        redis.appendBatches(
          this.#stream,
          this.#positions,
          replica,
          from,
          this.formatPosition(replica, to),
          maxLength,
          ...entries,
        ),
      CALL_MS + bytes / CALL_MS_FOR,
    );
    return String(answer);
  }

  /** Makes the group, which begins with the oldest entry. */
  async openGroup(group: string): Promise<void> {
    try {
      await this.#client.call((redis) => redis.xgroup('CREATE', this.#stream, group, '0', 'MKSTREAM'));
    } catch (error) {
      if (!String(error).includes('BUSYGROUP')) throw error;
    }
  }

  /** Entries for one of the group: those it took before and did not acknowledge, or new ones. None after a while. */
  async read(group: string, consumer: string, which: 'taken' | 'new'): Promise<StreamRead> {
    const from = which === 'taken' ? '0' : '>';
    const answer = await this.#client.call(
      (redis) =>
        redis.readBatches(this.#stream, group, consumer, from, READ_COUNT, LARGEST_BATCH + 1024, READ_BYTES),
      CALL_MS + LARGEST_BATCH / CALL_MS_FOR,
    );
    const found = reply.parse(answer);
    if (found.length === 0 && which === 'new') await delay(PAUSE_MS);
    const given = found.filter(([, , left]) => left !== 'later');
    return {
      entries: given.map(([id, fields, left]) => entryOf(id, fields, left === 'tooLarge')),
      more: given.length < found.length,
    };
  }

  async acknowledge(group: string, ids: readonly string[]): Promise<void> {
    await this.#client.call((redis) => redis.xack(this.#stream, group, ...ids));
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  #parsePosition(replica: string, text: string): StreamPosition | undefined {
    const [, digits, hmac = '', mac = ''] = /^(\d{1,15}) ([\w-]{43}) ([\w-]{43})$/.exec(text) ?? [];
    if (digits === undefined) return undefined;
    const position = { seq: Number(digits), hmac };
    const given = Buffer.from(mac);
    return this.#keys.some((keys) =>
      timingSafeEqual(given, Buffer.from(positionHmac(keys, replica, position))),
    )
      ? position
      : undefined;
  }
}

export interface Addition {
  /** The text of the position that is expected; empty: none. */
  readonly from: string;
  readonly to: StreamPosition;
  readonly batches: readonly SealedBatch[];
  /** Whether a collector is to tell the end of the chain. */
  readonly anchor: boolean;
  /** Records that the stream keeps, of all replicas; a seal counts as one. Older ones go. */
  readonly maxLength: number;
}

function positionHmac({ position }: AuditKeys, replica: string, { seq, hmac }: StreamPosition): string {
  return createHmac('sha256', position).update(`${replica}\n${seq}\n${hmac}`).digest('base64url');
}

/** Of an entry that is gone from the stream only its id is left. */
function entryOf(id: string, fields: readonly string[], tooLarge: boolean): StreamEntry {
  const named = new Map<string, string>();
  for (let at = 0; at + 1 < fields.length; at += 2) named.set(fields[at] ?? '', fields[at + 1] ?? '');
  const field = (name: string): string => named.get(name) ?? '';
  return {
    id,
    replica: field('replica'),
    lines: field('lines'),
    seal: field('seal'),
    previous: field('previous'),
    anchor: field('anchor') === '1',
    tooLarge,
    gone: fields.length === 0 && !tooLarge,
  };
}
