import { z } from 'zod';
import { type Clock, monotonicClock, stopwatch } from '../../base/clock.ts';
import { CallClient, type ProcessPort, type StoreFunction, StoreServer } from '../../base/message-calls.ts';
import { ChangePause } from './change-feed.ts';
import { MemoryChallengeStore } from './memory.ts';
import {
  type AgedChallenge,
  type ChallengeStore,
  type Learned,
  LONGEST_LIFE_MS,
  type ParkedChallenge,
} from './store.ts';
import {
  LONGEST_VALUE,
  readHeld,
  readLearned,
  readParked,
  writeHeld,
  writeLearned,
  writeParked,
} from './stored-form.ts';

/** Name of the service that `primaryChallenges` serves. */
const CHALLENGES = 'challenges';
/** Characters of a key: names of the configuration and an origin. */
const LONGEST_KEY = 16 * 1024;

/*
 * The calls. Values travel in their stored form, with their age at the sender: the monotonic clocks of two processes
 * differ.
 */

const key = z.string().max(LONGEST_KEY);
const text = z.string().max(LONGEST_VALUE);
const ms = z.number().min(0).max(LONGEST_LIFE_MS);
const agedValue = z.object({ value: text, ageMs: ms });
const nothing = z.undefined();
type AgedValue = z.output<typeof agedValue>;

/** The body of each call. */
const callForms = {
  load: z.object({ key }),
  replace: agedValue.extend({ key, seen: text.optional(), maxAgeMs: ms }),
  discard: z.object({ key, nonce: text }),
  park: agedValue.extend({ key, maxAgeMs: ms }),
  take: z.object({ key }),
  recall: z.object({ key }),
  learn: agedValue.extend({ key }),
  noteAccepted: z.object({ key, ms }),
  acceptedAgo: z.object({ key }),
  lead: z.object({ key, ms }),
};
type CallForms = typeof callForms;

/** The event that the store sends when a challenge was replaced or something was learned. */
const changeForm = z.object({ changed: key });
type Change = z.input<typeof changeForm>;

/**
 * A store in the primary process, or in another process that serves its challenges. Each call ends within
 * `CALL_DEADLINE_MS`, and at once when the port is closed.
 */
export class ChannelChallengeStore implements ChallengeStore {
  readonly #calls: CallClient;
  readonly #onError: (operation: string) => void;
  readonly #listeners: ((key: string) => void)[] = [];

  /** `onError`: called for each call that failed; the caller gets the error. */
  constructor(port: ProcessPort, onError: (operation: string) => void) {
    this.#onError = onError;
    this.#calls = new CallClient({ port, service: CHALLENGES, onEvent: (body) => this.#tell(body) });
  }

  load(key: string): Promise<AgedChallenge | undefined> {
    return this.#call('load', { key }, agedValue.optional(), readHeldReply);
  }

  replace(
    key: string,
    seen: string | undefined,
    next: AgedChallenge,
    maxAgeMs: number,
  ): Promise<AgedChallenge> {
    const body = { key, seen, value: writeHeld(next), ageMs: next.ageMs, maxAgeMs };
    const read = (reply: AgedValue | undefined, elapsedMs: number) => readHeldReply(reply, elapsedMs) ?? next;
    return this.#call('replace', body, agedValue.optional(), read);
  }

  discard(key: string, nonce: string): Promise<void> {
    return this.#call('discard', { key, nonce }, nothing, () => undefined);
  }

  async park(key: string, parked: ParkedChallenge, maxAgeMs: number): Promise<void> {
    const { ageMs } = parked;
    if (ageMs >= maxAgeMs) return;
    await this.#call('park', { key, value: writeParked(parked), ageMs, maxAgeMs }, nothing, () => undefined);
  }

  take(key: string): Promise<ParkedChallenge | undefined> {
    return this.#call('take', { key }, agedValue.optional(), readParkedReply);
  }

  recall(key: string): Promise<Learned | undefined> {
    return this.#call('recall', { key }, agedValue.optional(), readLearnedReply);
  }

  learn(key: string, learned: Learned): Promise<void> {
    const { ageMs } = learned;
    return this.#call('learn', { key, value: writeLearned(learned), ageMs }, nothing, () => undefined);
  }

  noteAccepted(key: string, ms: number): Promise<void> {
    return this.#call('noteAccepted', { key, ms }, nothing, () => undefined);
  }

  acceptedAgo(key: string): Promise<number | undefined> {
    return this.#call('acceptedAgo', { key }, ms.optional(), (ago) => ago);
  }

  lead(key: string, ms: number): Promise<boolean> {
    return this.#call('lead', { key, ms }, z.boolean(), (leads) => leads);
  }

  onChange(listener: (key: string) => void): void {
    this.#listeners.push(listener);
  }

  /** Needs no filter: the listener knows which keys it uses. */
  release(_key: string): void {}

  /** Does not close the port. */
  async close(): Promise<void> {
    this.#calls.close();
  }

  async #call<Name extends keyof CallForms, Form extends z.ZodType, T>(
    name: Name,
    body: z.input<CallForms[Name]>,
    form: Form,
    read: (reply: z.output<Form>, elapsedMs: number) => T,
  ): Promise<T> {
    const elapsed = stopwatch();
    try {
      const reply = form.parse(await this.#calls.call(name, body));
      return read(reply, elapsed());
    } catch (error) {
      this.#onError(name);
      throw error;
    }
  }

  #tell(body: unknown): void {
    const { data } = changeForm.safeParse(body);
    if (data === undefined) return;
    for (const listener of this.#listeners) listener(data.changed);
  }
}

const readHeldReply = replyOf(readHeld);
const readParkedReply = replyOf(readParked);
const readLearnedReply = replyOf(readLearned);

/** Reads the value of a reply, which became older on its way; undefined: there is none. */
function replyOf<T>(read: (text: string, ageMs: number) => T | undefined) {
  return (reply: AgedValue | undefined, elapsedMs: number): T | undefined =>
    reply && readable(read(reply.value, reply.ageMs + elapsedMs));
}

/** @throws Error if the value could not be read */
function readable<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('not the stored form of a value');
  return value;
}

/**
 * The challenges that the processes of one machine share through its primary process. Each `ChannelChallengeStore` is
 * a process of its own; the leadership of one that is gone ends by its time.
 */
export function primaryChallenges(clock: Clock = monotonicClock): StoreServer<ChallengeStore> {
  const memory = new MemoryChallengeStore(clock);
  return new StoreServer<ChallengeStore>({
    service: CHALLENGES,
    functions,
    open: (tell) => {
      const store = memory.join();
      const pause = new ChangePause((key) => tell({ changed: key } satisfies Change));
      store.onChange((key) => pause.announce(key));
      return store;
    },
  });
}

type Functions = {
  readonly [Name in keyof CallForms]: StoreFunction<ChallengeStore>;
};

const functions: ReadonlyMap<string, StoreFunction<ChallengeStore>> = new Map(
  Object.entries({
    load: async (store, body) => agedForm(await store.load(callForms.load.parse(body).key)),
    replace: async (store, body, lateMs) => {
      const { key, seen, value, ageMs, maxAgeMs } = callForms.replace.parse(body);
      const next = readable(readHeld(value, ageMs + lateMs));
      const held = await store.replace(key, seen, next, maxAgeMs);
      return held === next ? undefined : agedForm(held);
    },
    discard: async (store, body) => {
      const { key, nonce } = callForms.discard.parse(body);
      await store.discard(key, nonce);
    },
    park: async (store, body, lateMs) => {
      const { key, value, ageMs, maxAgeMs } = callForms.park.parse(body);
      await store.park(key, readable(readParked(value, ageMs + lateMs)), maxAgeMs);
    },
    take: async (store, body) => {
      const taken = await store.take(callForms.take.parse(body).key);
      return taken && { value: writeParked(taken), ageMs: taken.ageMs };
    },
    recall: async (store, body) => {
      const learned = await store.recall(callForms.recall.parse(body).key);
      return learned && { value: writeLearned(learned), ageMs: learned.ageMs };
    },
    learn: async (store, body, lateMs) => {
      const { key, value, ageMs } = callForms.learn.parse(body);
      await store.learn(key, readable(readLearned(value, ageMs + lateMs)));
    },
    noteAccepted: async (store, body) => {
      const { key, ms } = callForms.noteAccepted.parse(body);
      await store.noteAccepted(key, ms);
    },
    acceptedAgo: (store, body) => store.acceptedAgo(callForms.acceptedAgo.parse(body).key),
    lead: async (store, body) => {
      const { key, ms } = callForms.lead.parse(body);
      return await store.lead(key, ms);
    },
  } satisfies Functions),
);

function agedForm(held: AgedChallenge | undefined): AgedValue | undefined {
  return held && { value: writeHeld(held), ageMs: held.ageMs };
}
