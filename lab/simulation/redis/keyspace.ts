/** A reply of Redis: a status is `{ ok }`; null: nil. */
export type Reply = string | number | null | { readonly ok: string } | readonly Reply[];

/** An error reply of Redis. */
export class RedisError extends Error {}

type Value =
  | { readonly kind: 'string'; text: string }
  | { readonly kind: 'hash'; readonly fields: Map<string, string> }
  /** Members with their scores. */
  | { readonly kind: 'zset'; readonly scores: Map<string, number> };

interface Entry {
  readonly value: Value;
  /** Unix time in milliseconds; undefined: it stays. */
  expiresAt: number | undefined;
}

export interface KeyspaceDeps {
  /** Unix time in milliseconds. */
  readonly now: () => number;
  readonly publish: (channel: string, message: string) => void;
}

type Command = (keyspace: Keyspace, args: readonly string[]) => Reply;

const WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value';

/** The keys of one Redis server, and the commands that the gateway's scripts use. */
export class Keyspace {
  readonly #deps: KeyspaceDeps;
  #entries = new Map<string, Entry>();
  /** Names the run of the server. */
  runId: string;

  constructor(deps: KeyspaceDeps, runId: string) {
    this.#deps = deps;
    this.runId = runId;
  }

  get now(): number {
    return Math.floor(this.#deps.now());
  }

  /** Number of keys that have not expired. */
  get size(): number {
    for (const key of [...this.#entries.keys()]) this.#live(key);
    return this.#entries.size;
  }

  /** @throws RedisError */
  call(name: string, args: readonly string[]): Reply {
    const command = COMMANDS.get(name.toUpperCase());
    if (command === undefined) throw new RedisError(`ERR unknown command '${name}'`);
    return command(this, args);
  }

  /** A copy of all keys, as a replica or a file has. */
  snapshot(): ReadonlyMap<string, Entry> {
    return structuredClone(this.#entries);
  }

  restore(snapshot: ReadonlyMap<string, Entry>): void {
    this.#entries = structuredClone(snapshot) as Map<string, Entry>;
  }

  clear(): void {
    this.#entries.clear();
  }

  publish(channel: string, message: string): void {
    this.#deps.publish(channel, message);
  }

  get(key: string): Value | undefined {
    return this.#live(key)?.value;
  }

  put(key: string, value: Value, lifeMs: number | undefined): void {
    this.#entries.set(key, { value, expiresAt: lifeMs === undefined ? undefined : this.now + lifeMs });
  }

  delete(key: string): number {
    return this.#live(key) !== undefined && this.#entries.delete(key) ? 1 : 0;
  }

  /** Remaining milliseconds; -1: it stays; -2: there is no such key. */
  left(key: string): number {
    const entry = this.#live(key);
    if (entry === undefined) return -2;
    return entry.expiresAt === undefined ? -1 : entry.expiresAt - this.now;
  }

  expire(key: string, ms: number): number {
    const entry = this.#live(key);
    if (entry === undefined) return 0;
    if (ms <= 0) this.#entries.delete(key);
    else entry.expiresAt = this.now + ms;
    return 1;
  }

  #live(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry?.expiresAt === undefined || entry.expiresAt >= this.now) return entry;
    this.#entries.delete(key);
    return undefined;
  }
}

function textOf(keyspace: Keyspace, key: string): string | undefined {
  const value = keyspace.get(key);
  if (value !== undefined && value.kind !== 'string') throw new RedisError(WRONG_TYPE);
  return value?.text;
}

function fieldsOf(keyspace: Keyspace, key: string): Map<string, string> | undefined {
  const value = keyspace.get(key);
  if (value !== undefined && value.kind !== 'hash') throw new RedisError(WRONG_TYPE);
  return value?.fields;
}

function scoresOf(keyspace: Keyspace, key: string): Map<string, number> | undefined {
  const value = keyspace.get(key);
  if (value !== undefined && value.kind !== 'zset') throw new RedisError(WRONG_TYPE);
  return value?.scores;
}

/** The members in ascending order, as Redis has them: by score, then by bytes. */
function ordered(scores: ReadonlyMap<string, number>): [string, number][] {
  return [...scores].sort(([a, x], [b, y]) => x - y || Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

/** @throws RedisError for what is no integer */
function integer(text: string | undefined): number {
  if (text === undefined || !/^-?\d{1,17}$/.test(text)) {
    throw new RedisError('ERR value is not an integer or out of range');
  }
  return Number(text);
}

/** The first and the last position of a range of `length` items, which can be counted from the end. */
function range(length: number, from: string | undefined, to: string | undefined): [number, number] {
  const position = (text: string | undefined): number => {
    const at = integer(text);
    return at < 0 ? length + at : at;
  };
  return [Math.max(0, position(from)), Math.min(length - 1, position(to))];
}

function set(keyspace: Keyspace, [key = '', text = '', ...options]: readonly string[]): Reply {
  const at = options.indexOf('PX');
  const lifeMs = at === -1 ? undefined : integer(options[at + 1]);
  if (lifeMs !== undefined && lifeMs <= 0) throw new RedisError("ERR invalid expire time in 'set' command");
  keyspace.put(key, { kind: 'string', text }, lifeMs);
  return { ok: 'OK' };
}

function setFields(keyspace: Keyspace, [key = '', ...pairs]: readonly string[]): Reply {
  let fields = fieldsOf(keyspace, key);
  if (fields === undefined) {
    fields = new Map();
    keyspace.put(key, { kind: 'hash', fields }, undefined);
  }
  const before = fields.size;
  for (let at = 0; at < pairs.length; at += 2) fields.set(pairs[at] ?? '', pairs[at + 1] ?? '');
  return fields.size - before;
}

function deleteFields(keyspace: Keyspace, [key = '', ...names]: readonly string[]): Reply {
  const fields = fieldsOf(keyspace, key);
  if (fields === undefined) return 0;
  const count = names.filter((name) => fields.delete(name)).length;
  if (fields.size === 0) keyspace.delete(key);
  return count;
}

function addScored(keyspace: Keyspace, [key = '', score = '', member = '']: readonly string[]): Reply {
  let scores = scoresOf(keyspace, key);
  if (scores === undefined) {
    scores = new Map();
    keyspace.put(key, { kind: 'zset', scores }, undefined);
  }
  const before = scores.size;
  scores.set(member, Number(score));
  return scores.size - before;
}

function removeScored(keyspace: Keyspace, key: string, members: readonly string[]): Reply {
  const scores = scoresOf(keyspace, key);
  if (scores === undefined) return 0;
  const count = members.filter((member) => scores.delete(member)).length;
  if (scores.size === 0) keyspace.delete(key);
  return count;
}

function removeRanks(keyspace: Keyspace, [key = '', from, to]: readonly string[]): Reply {
  const members = ordered(scoresOf(keyspace, key) ?? new Map());
  const [first, last] = range(members.length, from, to);
  const out = members.slice(first, Math.max(first, last + 1)).map(([member]) => member);
  return removeScored(keyspace, key, out);
}

function descending(keyspace: Keyspace, [key = '', from, to, scored]: readonly string[]): Reply {
  const members = ordered(scoresOf(keyspace, key) ?? new Map()).reverse();
  const [first, last] = range(members.length, from, to);
  const found = members.slice(first, Math.max(first, last + 1));
  return found.flatMap(([member, score]) => (scored === undefined ? [member] : [member, String(score)]));
}

function time(keyspace: Keyspace): Reply {
  const { now } = keyspace;
  return [`${Math.floor(now / 1000)}`, `${(now % 1000) * 1000}`];
}

const COMMANDS: ReadonlyMap<string, Command> = new Map<string, Command>([
  ['SET', set],
  ['GET', (keyspace, [key = '']) => textOf(keyspace, key) ?? null],
  ['STRLEN', (keyspace, [key = '']) => Buffer.byteLength(textOf(keyspace, key) ?? '')],
  ['DEL', (keyspace, keys) => keys.filter((key) => keyspace.delete(key) === 1).length],
  ['UNLINK', (keyspace, keys) => keys.filter((key) => keyspace.delete(key) === 1).length],
  ['EXISTS', (keyspace, keys) => keys.filter((key) => keyspace.get(key) !== undefined).length],
  ['TYPE', (keyspace, [key = '']) => ({ ok: keyspace.get(key)?.kind ?? 'none' })],
  ['PTTL', (keyspace, [key = '']) => keyspace.left(key)],
  ['PEXPIRE', (keyspace, [key = '', ms]) => keyspace.expire(key, integer(ms))],
  ['HSET', setFields],
  ['HDEL', deleteFields],
  ['HLEN', (keyspace, [key = '']) => fieldsOf(keyspace, key)?.size ?? 0],
  ['HGETALL', (keyspace, [key = '']) => [...(fieldsOf(keyspace, key) ?? [])].flat()],
  [
    'HSTRLEN',
    (keyspace, [key = '', field = '']) => Buffer.byteLength(fieldsOf(keyspace, key)?.get(field) ?? ''),
  ],
  [
    'HMGET',
    (keyspace, [key = '', ...names]) => names.map((name) => fieldsOf(keyspace, key)?.get(name) ?? null),
  ],
  ['ZADD', addScored],
  ['ZCARD', (keyspace, [key = '']) => scoresOf(keyspace, key)?.size ?? 0],
  ['ZREM', (keyspace, [key = '', ...members]) => removeScored(keyspace, key, members)],
  ['ZREMRANGEBYRANK', removeRanks],
  ['ZREVRANGE', descending],
  ['TIME', time],
  ['INFO', (keyspace) => `# Server\r\nrun_id:${keyspace.runId}\r\nmaster_replid:${keyspace.runId}\r\n`],
  [
    'PUBLISH',
    (keyspace, [channel = '', message = '']) => {
      keyspace.publish(channel, message);
      return 0;
    },
  ],
]);
