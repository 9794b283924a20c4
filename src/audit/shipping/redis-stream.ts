import { createHmac, timingSafeEqual } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientContext, Result } from 'ioredis';
import { z } from 'zod';
import { RedisClient } from '../../redis/client.ts';
import type { RedisOptions } from '../../redis/connection.ts';
import type { AuditKeys } from '../keys.ts';
import type { SealedBatch } from '../reader/sealed-batches.ts';
import { type Head, LARGEST_BATCH, sealLine } from '../seal.ts';
import type { SinkPosition } from '../segments/signed-file.ts';

/** Timeout of a call, in milliseconds; and the bytes of a call for which it is a millisecond longer. */
const CALL_MS = 1_000;
const BYTES_PER_MS = 10 * 1024;
/** Pause after Redis had no entries, in milliseconds. */
const PAUSE_MS = 200;
/** Entries of one read, and bytes of them after which the rest is left for the next read. */
const READ_COUNT = 250;
const READ_BYTES = 8 * 1024 * 1024;
/** Maximum number of names and values of an entry: more than those that a gateway adds have. */
const MAX_FIELDS = 32;

/** The last seal of a log that is in the stream, as it was found in Redis. */
interface StreamPosition {
  /** Empty: there is none. */
  readonly text: string;
  /** Undefined: it does not have the form of one, or there is none. */
  readonly position: SinkPosition | undefined;
  /** True: one of the keys made it. */
  readonly isSigned: boolean;
}

/** An entry as it was found in the stream; it may be forged. */
export interface StreamEntry {
  readonly id: string;
  readonly replica: string;
  /** Lines of the log with their line ends; empty if `tooLarge`. */
  readonly lines: string;
  /** The line with their seal, without its line end. */
  readonly seal: string;
  /** `hmac` of the previous seal. */
  readonly previous: string;
  /** True: the collector is to output the head. */
  readonly anchor: boolean;
  readonly tooLarge: boolean;
  /** True: it was trimmed from the stream after it had been delivered. */
  readonly gone: boolean;
}

/** Entries, and whether more were delivered and left out of this read. */
export interface StreamRead {
  readonly entries: readonly StreamEntry[];
  readonly more: boolean;
}

/** No stream of gateways has an id above this; Lua counts exactly up to twice as much. */
const MAX_ID = 2 ** 52;
/** Bytes of a position at most: a longer one is not of a gateway, and never leaves Redis. */
const MAX_POSITION = 256;
/** Positions that are read at most: more than any number of processes. */
const MAX_POSITIONS = 10_000;
/** Stands for a position that is too long. */
const TOO_LONG = '?';
/** Begins the reply when the stream was removed, since nothing could be added to it. */
const REMOVED = 'removed: ';

/**
 * (stream, positions; replica, expected position, new position, most records, largest id, for each batch: records, lines,
 * seal, previous seal, anchor) → the position afterwards. A stream whose last id is larger than any of a gateway takes
 * no further entries, whatever becomes of that entry, so it is removed, as is another type of value: then the reply is
 * REMOVED and what was found. Adds nothing unless the position is the expected one, so a call that arrives twice, or
 * late, adds nothing. The id of an entry counts all lines that were ever added, so that the stream is trimmed by lines
 * and not by batches.
 */
const appendBatches = {
  numberOfKeys: 2,
  lua: `
local actual = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if #actual > ${MAX_POSITION} then actual = '${TOO_LONG}' end
if actual ~= ARGV[2] then return actual end
local count = 0
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'stream' then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then count = tonumber(string.match(info[at + 1], '^%d+')) end
    if info[at] == 'last-generated-id' and count > tonumber(ARGV[5]) then kind = 'the id ' .. info[at + 1] end
  end
end
if kind ~= 'stream' and kind ~= 'none' then
  redis.call('UNLINK', KEYS[1])
  return '${REMOVED}' .. kind
end
for at = 6, #ARGV, 5 do
  count = count + tonumber(ARGV[at]) + 1
  local oldest = string.format('%.0f', math.max(0, count - tonumber(ARGV[4])))
  redis.call('XADD', KEYS[1], 'MINID', '~', oldest, string.format('%.0f-0', count), 'replica', ARGV[1],
    'lines', ARGV[at + 1], 'seal', ARGV[at + 2], 'previous', ARGV[at + 3], 'anchor', ARGV[at + 4])
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return ARGV[3]`,
};

/**
 * (stream; group, consumer, '0' or '>', most entries, most bytes of one entry, most bytes of all) → for each entry: id,
 * fields, and '', 'tooLarge' or 'later' (left out to bound the bytes). Anybody who can write to Redis must not be able to
 * fill the memory of the reader, nor to add an entry whose reply breaks the bounds of every connection.
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
  if size > tonumber(ARGV[5]) or #fields > ${MAX_FIELDS} then
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

/** (positions; replica) → its position, or an empty text. */
const readPosition = {
  numberOfKeys: 1,
  readOnly: true,
  lua: `
if redis.call('HSTRLEN', KEYS[1], ARGV[1]) > ${MAX_POSITION} then return '${TOO_LONG}' end
return redis.call('HGET', KEYS[1], ARGV[1]) or ''`,
};

/** (positions) → replicas, each with its position. A name that is too long is not that of a replica. */
const readPositions = {
  numberOfKeys: 1,
  readOnly: true,
  lua: `
if redis.call('HLEN', KEYS[1]) > ${MAX_POSITIONS} then
  return redis.error_reply('ERR the stream has more than ${MAX_POSITIONS} positions, so another writer of Redis made some')
end
local all, result = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #all, 2 do
  if #all[at] <= ${MAX_POSITION} then
    table.insert(result, all[at])
    table.insert(result, #all[at + 1] <= ${MAX_POSITION} and all[at + 1] or '${TOO_LONG}')
  end
end
return result`,
};

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    appendBatches: (...args: (string | number)[]) => Result<unknown, Context>;
    readBatches: (...args: (string | number)[]) => Result<unknown, Context>;
    readPosition: (...args: string[]) => Result<unknown, Context>;
    readPositions: (...args: string[]) => Result<unknown, Context>;
  }
}

const positions = z.array(z.string());
const reply = z.array(z.tuple([z.string(), z.array(z.string()), z.enum(['', 'tooLarge', 'later'])]));

/** Somebody had added an entry to the stream after which none fits, or replaced it; its entries are lost. */
export class StreamRemoved extends Error {
  constructor(found: string) {
    super(`the stream took no entries, since another writer of Redis left ${found} there; it was removed`);
  }
}

/**
 * The Redis stream with the records of all replicas. Each entry is a batch as it is in the log, with its seal, so anybody
 * with the key can check that a gateway wrote it. Positions carry an HMAC of their own. An attacker who can write to
 * Redis and does not have the key can remove entries, which is reported as a gap; add old ones again, which are
 * recognised; and set a position back, so that records are sent again. All calls reject while Redis is away.
 */
export class RedisStream {
  readonly #client: RedisClient;
  readonly #stream: string;
  readonly #positions: string;
  readonly #keys: readonly [AuditKeys, ...AuditKeys[]];

  /** `keys`: the current key first, then those that sealed earlier records. */
  constructor(redis: RedisOptions, keys: readonly [AuditKeys, ...AuditKeys[]]) {
    this.#keys = keys;
    // The hash tag puts both on one node of a Cluster. Version 1 had an entry for each record, and no seals.
    this.#stream = `${redis.keyPrefix}:v2:{audit}:records`;
    this.#positions = `${redis.keyPrefix}:v2:{audit}:positions`;
    this.#client = new RedisClient(
      { ...redis, timeoutMs: CALL_MS },
      {
        appendBatches,
        readBatches,
        readPosition,
        readPositions,
      },
    );
  }

  async position(replica: string): Promise<StreamPosition> {
    const reply = await this.#client
      .call((redis) => redis.readPosition(this.#positions, replica))
      .catch(async (error: unknown) => {
        // Somebody replaced the hash: without it, the log is sent again.
        if (String(error).includes('WRONGTYPE'))
          await this.#client.call((redis) => redis.unlink(this.#positions));
        throw error;
      });
    const text = String(reply);
    return { text, ...this.#parsePosition(replica, text) };
  }

  /** The last seals of all replicas, and the replicas whose position none of the keys made. */
  async heads(): Promise<{ readonly heads: readonly Head[]; readonly forged: readonly string[] }> {
    const all = positions.parse(await this.#client.call((redis) => redis.readPositions(this.#positions)));
    const heads: Head[] = [];
    const forged: string[] = [];
    for (let at = 0; at + 1 < all.length; at += 2) {
      const [replica = '', text = ''] = all.slice(at, at + 2);
      const { position, isSigned } = this.#parsePosition(replica, text);
      if (position !== undefined && isSigned) heads.push({ replica, ...position });
      else forged.push(replica);
    }
    return { heads, forged };
  }

  /** A position as it is stored in Redis. */
  formatPosition(replica: string, { seq, hmac }: SinkPosition): string {
    return `${seq} ${hmac} ${positionHmac(this.#keys[0], replica, { seq, hmac })}`;
  }

  /**
   * Adds batches if the position is `from`; resolves to the position afterwards, which is that of `to` if they were
   * added.
   * @throws StreamRemoved if somebody had made the stream unusable; the next call begins another one
   */
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
    const result = await this.#client.call(
      (redis) =>
        redis.appendBatches(
          this.#stream,
          this.#positions,
          replica,
          from,
          this.formatPosition(replica, to),
          maxLength,
          MAX_ID,
          ...entries,
        ),
      CALL_MS + bytes / BYTES_PER_MS,
    );
    const text = String(result);
    if (text.startsWith(REMOVED)) throw new StreamRemoved(text.slice(REMOVED.length));
    return text;
  }

  /** Creates the group, starting with the oldest entry, unless it exists. */
  async openGroup(group: string): Promise<void> {
    try {
      await this.#client.call((redis) => redis.xgroup('CREATE', this.#stream, group, '0', 'MKSTREAM'));
    } catch (error) {
      if (!String(error).includes('BUSYGROUP')) throw error;
    }
  }

  /** Entries for a consumer: those delivered to it and not acknowledged, or new ones; none after a short wait. */
  async read(group: string, consumer: string, which: 'taken' | 'new'): Promise<StreamRead> {
    const from = which === 'taken' ? '0' : '>';
    const result = await this.#client.call(
      (redis) =>
        redis.readBatches(this.#stream, group, consumer, from, READ_COUNT, LARGEST_BATCH + 1024, READ_BYTES),
      CALL_MS + LARGEST_BATCH / BYTES_PER_MS,
    );
    const found = reply.parse(result);
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

  #parsePosition(replica: string, text: string): Pick<StreamPosition, 'position' | 'isSigned'> {
    const [, digits, hmac = '', mac = ''] = /^(\d{1,15}) ([\w-]{43}) ([\w-]{43})$/.exec(text) ?? [];
    if (digits === undefined) return { position: undefined, isSigned: false };
    const position = { seq: Number(digits), hmac };
    const given = Buffer.from(mac);
    const isSigned = this.#keys.some((keys) =>
      timingSafeEqual(given, Buffer.from(positionHmac(keys, replica, position))),
    );
    return { position, isSigned };
  }
}

interface Addition {
  /** The expected position as a text; empty: none. */
  readonly from: string;
  readonly to: SinkPosition;
  readonly batches: readonly SealedBatch[];
  /** True: the collector is to output the head. */
  readonly anchor: boolean;
  /** Records of all replicas that the stream keeps, a seal counted as one; older ones are trimmed. */
  readonly maxLength: number;
}

function positionHmac({ position }: AuditKeys, replica: string, { seq, hmac }: SinkPosition): string {
  return createHmac('sha256', position).update(`${replica}\n${seq}\n${hmac}`).digest('base64url');
}

/** An entry that was trimmed has its id only. */
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
