import { hash, randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { Commands, RedisOptions } from './redis-connection.ts';
import { CALL_MS, RedisLink } from './redis-link.ts';
import type { AgedChallenge, ChallengeStore, Learned, ParkedChallenge } from './store.ts';
import { readHeld, readLearned, readParked, writeHeld, writeLearned, writeParked } from './stored-form.ts';

/** How long it is remembered what an upstream tolerates, in milliseconds: 30 days after it was last learned. */
const LEARNED_MS = 30 * 24 * 60 * 60_000;

export interface RedisStoreEvents {
  /** Called with the first that is known, and on each change. `reason` says why Redis is not there. */
  onUp(up: boolean, reason: string | undefined): void;
  /** A call of the store failed; the caller gets the same error. It holds no secret. */
  onError(operation: string, error: unknown): void;
}

/**
 * A store in Redis, which connects by itself for as long as it is open: Redis may be absent at the start and
 * go away at any time. Each call ends within 100 ms.
 */
export function openRedisStore(options: RedisOptions, events: RedisStoreEvents): ChallengeStore {
  return new RedisChallengeStore(options, events);
}

/** Where the parts of one challenge key live, all on one node of a Cluster. */
interface Places {
  readonly ticket: string;
  readonly shared: string;
  readonly parked: string;
  readonly learned: string;
  readonly leader: string;
}

interface Step {
  readonly commands: Commands;
  readonly places: Places;
}

/** value, maxAgeMs, ms left */
const loaded = z.tuple([z.string(), z.coerce.number(), z.number()]);
/** … and the nonce that stayed in its place */
const refused = z.tuple([...loaded.def.items, z.string()]);
const taken = z.tuple([z.string(), z.coerce.number()]);

class RedisChallengeStore implements ChallengeStore {
  /** Names this process among all. */
  readonly #process = randomUUID();
  readonly #prefix: string;
  readonly #events: RedisStoreEvents;
  readonly #link: RedisLink;
  readonly #asked = new Set<string>();
  readonly #listeners: ((key: string) => void)[] = [];

  constructor(options: RedisOptions, events: RedisStoreEvents) {
    // With the version of what is stored: another version does not see it.
    this.#prefix = `${options.keyPrefix}:v1`;
    this.#events = events;
    this.#link = new RedisLink({
      redis: options,
      channel: this.#channel,
      ownChannel: `${this.#prefix}:echo:${this.#process}`,
      pulseKeys: () => this.#pulseKeys(options),
      onUp: (up, reason) => events.onUp(up, reason),
      onMessage: (message) => this.#hear(message),
      onRejoin: () => {
        for (const key of this.#asked) this.#tell(key);
      },
    });
  }

  load(key: string): Promise<AgedChallenge | undefined> {
    return this.#run('load', key, async ({ commands, places }) => {
      const elapsed = stopwatch();
      const { data } = loaded.safeParse(await commands.loadShared(places.shared));
      if (data === undefined) return undefined;
      const [value, maxAgeMs, leftMs] = data;
      return aged(value, maxAgeMs, leftMs - elapsed());
    });
  }

  async replace(
    key: string,
    seen: string | undefined,
    next: AgedChallenge,
    maxAgeMs: number,
  ): Promise<AgedChallenge> {
    const { nonce } = next.challenge;
    const elapsed = stopwatch();
    const reply = await this.#write('replace', key, ({ commands, places }) =>
      commands.replaceShared(
        places.ticket,
        places.shared,
        seen ?? '',
        nonce,
        writeHeld(next),
        Math.round(maxAgeMs),
        Math.round(maxAgeMs - next.ageMs - elapsed()),
        this.#channel,
        this.#announcement(key),
      ),
    );
    const { data } = refused.safeParse(reply);
    if (data === undefined) return next;
    const [value, maxMs, leftMs, nonceHeld] = data;
    // What cannot be read is as good as none.
    return (
      aged(value, maxMs, leftMs - elapsed()) ??
      this.replace(key, nonceHeld, { ...next, ageMs: next.ageMs + elapsed() }, maxAgeMs)
    );
  }

  async park(key: string, parked: ParkedChallenge, maxAgeMs: number): Promise<void> {
    const max = Math.round(maxAgeMs);
    if (parked.ageMs >= max) return;
    const elapsed = stopwatch();
    await this.#write('park', key, ({ commands, places }) => {
      const age = Math.round(parked.ageMs + elapsed());
      return commands.park(places.ticket, places.parked, writeParked(parked), max, age);
    });
  }

  async take(key: string): Promise<ParkedChallenge | undefined> {
    const elapsed = stopwatch();
    const reply = await this.#write('take', key, ({ commands, places }) =>
      commands.takeParked(places.ticket, places.parked),
    );
    const { data } = taken.safeParse(reply);
    if (data === undefined) return undefined;
    const [value, ageMs] = data;
    // One that cannot be read was as good as none; the next may be.
    return readParked(value, ageMs + elapsed()) ?? this.take(key);
  }

  recall(key: string): Promise<Learned | undefined> {
    return this.#run('recall', key, async ({ commands, places }) => {
      const reply = await commands.recallLearned(places.learned);
      return typeof reply === 'string' ? readLearned(reply) : undefined;
    });
  }

  async learn(key: string, learned: Learned): Promise<void> {
    await this.#write('learn', key, ({ commands, places }) =>
      commands.learnFor(
        places.ticket,
        places.learned,
        writeLearned(learned),
        LEARNED_MS,
        this.#channel,
        this.#announcement(key),
      ),
    );
  }

  lead(key: string, ms: number): Promise<boolean> {
    return this.#write('lead', key, async ({ commands, places }) => {
      const reply = await commands.leadFor(places.ticket, places.leader, this.#process, Math.round(ms));
      return reply === 1;
    });
  }

  onChange(listener: (key: string) => void): void {
    this.#listeners.push(listener);
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  /** Does what changes something: only as long as the caller waits, and at most once. */
  #write<T>(operation: string, key: string, work: (step: Step) => Promise<T>): Promise<T> {
    return this.#run(operation, key, async (step, signal) => {
      await step.commands.set(step.places.ticket, '', 'PX', CALL_MS);
      signal.throwIfAborted();
      return await work(step);
    });
  }

  async #run<T>(
    operation: string,
    key: string,
    work: (step: Step, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    this.#asked.add(key);
    try {
      return await this.#link.call((commands, signal) =>
        work({ commands, places: this.#places(key) }, signal),
      );
    } catch (error) {
      this.#events.onError(operation, error);
      throw error;
    }
  }

  get #channel(): string {
    return `${this.#prefix}:changes`;
  }

  #announcement(key: string): string {
    return `${this.#process} ${key}`;
  }

  #hear(message: string): void {
    const at = message.indexOf(' ');
    if (at > 0 && message.slice(0, at) !== this.#process) this.#tell(message.slice(at + 1));
  }

  #tell(key: string): void {
    for (const listener of this.#listeners) listener(key);
  }

  #pulseKeys({ servers }: RedisOptions): string[] {
    if (servers.kind === 'cluster' && this.#asked.size > 0) {
      return [...this.#asked].map((key) => `${this.#base(key)}:pulse`);
    }
    return [`${this.#prefix}:pulse`];
  }

  #places(key: string): Places {
    const base = this.#base(key);
    return {
      ticket: `${base}:ticket:${randomUUID()}`,
      shared: `${base}:shared`,
      parked: `${base}:parked`,
      learned: `${base}:learned`,
      leader: `${base}:leader`,
    };
  }

  #base(key: string): string {
    return `${this.#prefix}:{${hash('sha256', key)}}`;
  }
}

/** undefined: it cannot be read, or has no end, so that it is not of a store's making. */
function aged(value: string, maxAgeMs: number, leftMs: number): AgedChallenge | undefined {
  return leftMs < 0 ? undefined : readHeld(value, Math.max(0, maxAgeMs - leftMs));
}

/**
 * Milliseconds from here. What is told and what is heard is older by the time that it took: rather a little
 * more than it is than less.
 */
function stopwatch(): () => number {
  const start = performance.now();
  return () => performance.now() - start;
}
