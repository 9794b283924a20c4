import { hash, randomUUID } from 'node:crypto';
import { z } from 'zod';
import { stopwatch } from '../../base/clock.ts';
import { type Commands, type RedisOptions, slotOf } from '../../redis/connection.ts';
import { RedisSession } from '../../redis/session.ts';
import { ChangeFeed } from './change-feed.ts';
import { scripts } from './redis-scripts.ts';
import {
  type AgedChallenge,
  type ChallengeStore,
  LEARNED_MS,
  type Learned,
  LONGEST_LIFE_MS,
  type ParkedChallenge,
} from './store.ts';
import { readHeld, readLearned, readParked, writeHeld, writeLearned, writeParked } from './stored-form.ts';
import {
  CLOCK_DIFFERENCE_MS,
  type SignatureFault,
  type StoreKey,
  type ValueKind,
  ValueSigner,
} from './value-signer.ts';

/** Reply of Redis to PTTL for a key without a time limit. */
const NEVER_EXPIRES = -1;
/** How long the name of a process counts, in milliseconds: longer than processes run. */
const PROCESS_LIFE_MS = 10 * 365 * 24 * 60 * 60_000;
/** Most parked challenges without a valid signature that one call passes over. */
const TAKEN_AT_MOST = 8;

export interface RedisStoreOptions extends RedisOptions {
  /** They sign the values that gateways leave for each other, the first one the new ones; empty: nothing is signed. */
  readonly keys: readonly StoreKey[];
}

/** Why a stored value is not used. `malformed`: no gateway writes it so. */
export type RejectionReason = 'malformed' | SignatureFault;

export interface RedisStoreEvents {
  /** Called with the first that is known, and on each change. `reason` says why Redis is not there. */
  onUp(up: boolean, reason: string | undefined): void;
  /** A call of the store failed; the caller gets the same error. It holds no secret. */
  onError(operation: string, error: unknown): void;
  /** Redis holds a value that no gateway wrote, or one that is too old; it is not used, and removed. */
  onRejected(kind: ValueKind, reason: RejectionReason): void;
}

/** Calls Redis. `base`: the start of the names of all parts of one challenge key, which are on one node of a Cluster. */
type Work<Last, T> = (commands: Commands, base: string, last: Last) => Promise<T>;

const milliseconds = z.coerce.number().min(0).max(LONGEST_LIFE_MS);
/** value, maxAgeMs, ms left, nonce */
const loaded = z.tuple([z.string(), milliseconds, milliseconds, z.string()]);
/** … and what of it says which challenge is in the way, whatever the rest is */
const inTheWay = z.tuple([z.string(), z.unknown(), z.unknown(), z.string()]);
const taken = z.tuple([z.string(), milliseconds]);

/**
 * A store in Redis, which connects by itself for as long as it is open: Redis may be absent at the start and
 * go away at any time. Each call ends within `timeoutMs`. Whatever somebody else writes there, a caller gets what a
 * gateway could have written, and with keys only what one wrote.
 */
export class RedisChallengeStore implements ChallengeStore {
  /** Names this process among all. */
  readonly #process = randomUUID();
  /** Signed as of this, the name of this process is one text, which Redis recognises. */
  #startedAt = processStart();
  readonly #prefix: string;
  readonly #timeoutMs: number;
  readonly #events: RedisStoreEvents;
  readonly #signer: ValueSigner;
  readonly #session: RedisSession;
  readonly #feed: ChangeFeed;
  /** The keys in use, with their slots in a Cluster. */
  readonly #used = new Map<string, number>();
  readonly #listeners: ((key: string) => void)[] = [];

  constructor(options: RedisStoreOptions, events: RedisStoreEvents) {
    this.#signer = new ValueSigner(options.keys);
    // With the version of what is stored: another version, or a gateway without the keys, does not see it.
    this.#prefix = `${options.keyPrefix}:v2${this.#signer.signs ? ':signed' : ''}`;
    this.#events = events;
    this.#feed = new ChangeFeed({
      process: this.#process,
      channel: this.#channel,
      signer: this.#signer,
      isUsed: (key) => this.#used.has(key),
      onChange: (key) => this.#tell(key),
      onRejected: (reason) => events.onRejected('change', reason),
    });
    this.#timeoutMs = options.timeoutMs;
    this.#session = new RedisSession({
      redis: options,
      scripts,
      channel: this.#channel,
      ownChannel: `${this.#prefix}:echo:${this.#process}`,
      pulseKeys: (commands) => this.#pulseKeys(commands),
      onUp: (up, reason) => events.onUp(up, reason),
      onMessage: (message) => this.#feed.hear(message),
      onRejoin: () => {
        for (const key of this.#used.keys()) this.#tell(key);
      },
    });
  }

  load(key: string): Promise<AgedChallenge | undefined> {
    return this.#run('load', key, async (commands, base) => {
      const elapsed = stopwatch();
      const reply = await commands.loadShared(`${base}:shared`);
      if (reply === null) return undefined;
      const held = this.#readShared(base, reply, elapsed);
      if (held === undefined) await commands.unlink(`${base}:shared`);
      return held;
    });
  }

  async replace(
    key: string,
    seen: string | undefined,
    next: AgedChallenge,
    maxAgeMs: number,
  ): Promise<AgedChallenge> {
    const elapsed = stopwatch();
    const put = (instead: string | undefined): Promise<unknown> =>
      this.#write('replace', key, (commands, base, ticket) => {
        const ageMs = next.ageMs + elapsed();
        return commands.replaceShared(
          ticket,
          `${base}:shared`,
          instead ?? '',
          next.challenge.nonce,
          this.#sign('challenge', base, writeHeld(next), ageMs, maxAgeMs),
          Math.round(maxAgeMs),
          Math.round(maxAgeMs - ageMs),
          this.#channel,
          this.#feed.announcement(key),
        );
      });
    const reply = await put(seen);
    if (reply === null) return next;
    const held = this.#readShared(this.#base(key), reply, elapsed);
    if (held !== undefined) return held;
    // An unreadable value counts as none; if it was replaced meanwhile, the new one stays.
    await put(inTheWay.safeParse(reply).data?.[3]);
    return next;
  }

  discard(key: string, nonce: string): Promise<void> {
    return this.#run('discard', key, async (commands, base) => {
      await commands.discardShared(`${base}:shared`, nonce);
    });
  }

  async park(key: string, parked: ParkedChallenge, maxAgeMs: number): Promise<void> {
    const max = Math.round(maxAgeMs);
    if (parked.ageMs >= max) return;
    const elapsed = stopwatch();
    await this.#write('park', key, (commands, base, ticket) => {
      const age = Math.round(parked.ageMs + elapsed());
      const value = this.#sign('parked', base, writeParked(parked), age, max);
      return commands.park(ticket, `${base}:parked`, value, max, age);
    });
  }

  async take(key: string): Promise<ParkedChallenge | undefined> {
    for (let attempt = 0; attempt < TAKEN_AT_MOST; attempt += 1) {
      const elapsed = stopwatch();
      const reply = await this.#write('take', key, (commands, base, ticket) =>
        commands.takeParked(ticket, `${base}:parked`),
      );
      if (reply === null) return undefined;
      const [value = '', ageMs = 0] = taken.safeParse(reply).data ?? [];
      const parked = this.#open('parked', this.#base(key), value, ageMs + elapsed(), readParked);
      // One that cannot be read was as good as none; the next may be.
      if (parked !== undefined) return parked;
    }
    return undefined;
  }

  recall(key: string): Promise<Learned | undefined> {
    return this.#run('recall', key, (commands, base) =>
      this.#readAged('learned', commands, base, (text, left, leastMs) => {
        const ageMs = ageOf(LEARNED_MS, left, leastMs);
        return ageMs === undefined ? undefined : readLearned(text, ageMs);
      }),
    );
  }

  async learn(key: string, learned: Learned): Promise<void> {
    const leftMs = Math.floor(LEARNED_MS - learned.ageMs);
    if (leftMs <= 0) return;
    await this.#write('learn', key, (commands, base, ticket) =>
      commands.learnFor(
        ticket,
        `${base}:learned`,
        this.#sign('learned', base, writeLearned(learned), learned.ageMs, LEARNED_MS),
        leftMs,
        this.#channel,
        this.#feed.announcement(key),
      ),
    );
  }

  noteAccepted(key: string, ms: number): Promise<void> {
    return this.#call('noteAccepted', key, async (commands, base) => {
      // Late or twice, it is as true.
      const life = Math.round(ms);
      await commands.set(`${base}:accepted`, this.#sign('accepted', base, `${life}`, 0, life), 'PX', life);
    });
  }

  acceptedAgo(key: string): Promise<number | undefined> {
    return this.#call('acceptedAgo', key, (commands, base) =>
      this.#readAged('accepted', commands, base, readNote),
    );
  }

  async lead(key: string, ms: number): Promise<boolean> {
    // The clock was set, as it is soon after a machine has started: what was signed before may count as expired.
    if (Math.abs(processStart() - this.#startedAt) > CLOCK_DIFFERENCE_MS) this.#startedAt = processStart();
    const attempt = (anyway: boolean): Promise<unknown> =>
      this.#write('lead', key, (commands, base, ticket) => {
        const place = { kind: 'leader', place: base } as const;
        const self = this.#signer.signAsOf(place, this.#process, this.#startedAt, PROCESS_LIFE_MS);
        return commands.leadFor(ticket, `${base}:leader`, self, Math.round(ms), anyway ? '1' : '');
      });
    const reply = await attempt(false);
    if (reply === 1) return true;
    const leader = this.#open('leader', this.#base(key), String(reply), 0, readProcess);
    return leader === undefined ? (await attempt(true)) === 1 : leader === this.#process;
  }

  onChange(listener: (key: string) => void): void {
    this.#listeners.push(listener);
  }

  release(key: string): void {
    this.#used.delete(key);
  }

  close(): Promise<void> {
    this.#feed.close();
    return this.#session.close();
  }

  /** undefined: no gateway wrote it so, or it is too old. */
  #readShared(base: string, reply: unknown, elapsed: () => number): AgedChallenge | undefined {
    const { data } = loaded.safeParse(reply);
    if (data === undefined) {
      this.#events.onRejected('challenge', 'malformed');
      return undefined;
    }
    const [value, maxAgeMs, leftMs, nonce] = data;
    const ageMs = Math.max(0, maxAgeMs - leftMs) + elapsed();
    return this.#open('challenge', base, value, ageMs, (text, age) => {
      const held = readHeld(text, age);
      return held?.challenge.nonce === nonce ? held : undefined;
    });
  }

  /** Reads a value whose age shows in the milliseconds that it has left; one that is rejected is removed. */
  async #readAged<T>(
    kind: 'learned' | 'accepted',
    commands: Commands,
    base: string,
    read: (text: string, leftMs: number, leastMs: number) => T | undefined,
  ): Promise<T | undefined> {
    const name = `${base}:${kind}`;
    const reply = await commands.readValue(name);
    if (reply === null) return undefined;
    const left = await commands.pttl(name);
    const value = this.#open(kind, base, String(reply), 0, (text, leastMs) => read(text, left, leastMs));
    if (value === undefined) await commands.unlink(name);
    return value;
  }

  #sign(kind: ValueKind, base: string, text: string, ageMs: number, lifeMs: number): string {
    return this.#signer.sign({ kind, place: base }, text, ageMs, lifeMs);
  }

  /** Checks the signature of a value, if values are signed, and reads it; undefined: it is rejected. */
  #open<T>(
    kind: ValueKind,
    base: string,
    value: string,
    ageMs: number,
    read: (text: string, ageMs: number) => T | undefined,
  ): T | undefined {
    const opened = this.#signer.open({ kind, place: base }, value);
    if (typeof opened === 'string') {
      this.#events.onRejected(kind, opened);
      return undefined;
    }
    // Redis knows the age better than two wall clocks do, unless somebody changed it.
    const least = (opened.ageMs ?? 0) - CLOCK_DIFFERENCE_MS;
    const result = read(opened.text, Math.max(ageMs, least));
    if (result === undefined) this.#events.onRejected(kind, 'malformed');
    return result;
  }

  /** Does what changes something: only as long as the caller waits, and at most once; with a ticket for that. */
  #write<T>(operation: string, key: string, work: Work<string, T>): Promise<T> {
    return this.#run(operation, key, async (commands, base, signal) => {
      const ticket = `${base}:ticket:${randomUUID()}`;
      await commands.set(ticket, '', 'PX', this.#timeoutMs);
      signal.throwIfAborted();
      return await work(commands, base, ticket);
    });
  }

  #run<T>(operation: string, key: string, work: Work<AbortSignal, T>): Promise<T> {
    if (!this.#used.has(key)) this.#used.set(key, slotOf(this.#base(key)));
    return this.#call(operation, key, work);
  }

  async #call<T>(operation: string, key: string, work: Work<AbortSignal, T>): Promise<T> {
    const base = this.#base(key);
    try {
      return await this.#session.call((commands, signal) => work(commands, base, signal));
    } catch (error) {
      this.#events.onError(operation, error);
      throw error;
    }
  }

  get #channel(): string {
    return `${this.#prefix}:changes`;
  }

  #tell(key: string): void {
    for (const listener of this.#listeners) listener(key);
  }

  /**
   * In a Cluster one key on each master that has keys in use: a beat for each key would take all the time of a process.
   */
  #pulseKeys(commands: Commands): string[] {
    if (!('slots' in commands) || this.#used.size === 0) return [`${this.#prefix}:{pulse}:${this.#process}`];
    const byMaster = new Map<string | undefined, string>();
    for (const [key, slot] of this.#used) {
      const [master] = commands.slots[slot] ?? [];
      if (!byMaster.has(master)) byMaster.set(master, key);
    }
    return Array.from(byMaster.values(), (key) => `${this.#base(key)}:pulse:${this.#process}`);
  }

  #base(key: string): string {
    return `${this.#prefix}:{${hash('sha256', key)}}`;
  }
}

/** How long ago a note was made that holds its life; undefined: no gateway wrote it. */
function readNote(text: string, leftMs: number, leastMs: number): number | undefined {
  const life = /^[1-9]\d{0,8}$/.test(text) ? Number(text) : 0;
  return ageOf(life, leftMs, leastMs);
}

/** Age of a value by its lifetime and the milliseconds that it has left; undefined: no gateway wrote it. */
function ageOf(lifeMs: number, leftMs: number, leastMs: number): number | undefined {
  // 0 and less: it has expired meanwhile.
  return leftMs === NEVER_EXPIRES || leftMs > lifeMs
    ? undefined
    : Math.max(leastMs, lifeMs - Math.max(leftMs, 0));
}

/** The name of a process; undefined: it is none. */
function readProcess(text: string): string | undefined {
  return /^[0-9a-f-]{36}$/.test(text) ? text : undefined;
}

/** When this process started, as the wall clock has it now; Unix time in milliseconds. */
function processStart(): number {
  return Math.floor(Date.now() - performance.now());
}
