import { z } from 'zod';
import { type Clock, monotonicClock, stopwatch } from '../../base/clock.ts';
import { CallClient, type ProcessPort, type StoreFunction, StoreServer } from '../../base/message-calls.ts';
import { ChangePause } from './change-feed.ts';
import { MemoryChallengeStore } from './memory.ts';
import { type ChallengeStore, LONGEST_LIFE_MS } from './store.ts';
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

const key = z.string().max(LONGEST_KEY);
const text = z.string().max(LONGEST_VALUE);
const ms = z.number().min(0).max(LONGEST_LIFE_MS);
const held = stored(writeHeld, readHeld);
const parked = stored(writeParked, readParked);
const learned = stored(writeLearned, readLearned);

/** The functions of a store that are called from other processes. */
type Called = Omit<ChallengeStore, 'onChange' | 'release' | 'close'>;

/** Their arguments and results, as they are sent and as they are. */
const forms = {
  load: [z.tuple([key]), held.optional()],
  replace: [z.tuple([key, text.optional(), held, ms]), held],
  discard: [z.tuple([key, text]), z.void()],
  park: [z.tuple([key, parked, ms]), z.void()],
  take: [z.tuple([key]), parked.optional()],
  recall: [z.tuple([key]), learned.optional()],
  learn: [z.tuple([key, learned]), z.void()],
  noteAccepted: [z.tuple([key, ms]), z.void()],
  acceptedAgo: [z.tuple([key]), ms.optional()],
  lead: [z.tuple([key, ms]), z.boolean()],
} satisfies {
  readonly [Name in keyof Called]: readonly [
    z.ZodType<Parameters<Called[Name]>>,
    z.ZodType<Awaited<ReturnType<Called[Name]>>>,
  ];
};
type Forms = readonly [z.ZodType<unknown[]>, z.ZodType];

/** A value that is sent in its stored form, with its age at the sender: the monotonic clocks of two processes differ. */
function stored<T extends { readonly ageMs: number }>(
  write: (value: T) => string,
  read: (text: string, ageMs: number) => T | undefined,
) {
  return z.codec(z.object({ value: text, ageMs: ms }), z.custom<T>(), {
    encode: (value) => ({ value: write(value), ageMs: value.ageMs }),
    decode: ({ value, ageMs }) => {
      const found = read(value, ageMs);
      if (found === undefined) throw new Error('not the stored form of a value');
      return found;
    },
  });
}

/** Adds the time on the way to a value that has an age. */
function older<T>(value: T, elapsedMs: number): T {
  if (typeof value !== 'object' || value === null || !('ageMs' in value)) return value;
  return { ...value, ageMs: Number(value.ageMs) + elapsedMs };
}

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
  readonly load = this.#caller('load');
  readonly replace = this.#caller('replace');
  readonly discard = this.#caller('discard');
  readonly park = this.#caller('park');
  readonly take = this.#caller('take');
  readonly recall = this.#caller('recall');
  readonly learn = this.#caller('learn');
  readonly noteAccepted = this.#caller('noteAccepted');
  readonly acceptedAgo = this.#caller('acceptedAgo');
  readonly lead = this.#caller('lead');

  /** `onError`: called for each call that failed; the caller gets the error. */
  constructor(port: ProcessPort, onError: (operation: string) => void) {
    this.#onError = onError;
    this.#calls = new CallClient({ port, service: CHALLENGES, onEvent: (body) => this.#tell(body) });
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

  #caller<Name extends keyof Called>(name: Name): Called[Name] {
    const [args, result]: Forms = forms[name];
    const call = async (...values: unknown[]): Promise<unknown> => {
      const elapsed = stopwatch();
      try {
        const reply = await this.#calls.call(name, args.encode(values));
        return older(result.decode(reply), elapsed());
      } catch (error) {
        this.#onError(name);
        throw error;
      }
    };
    return call as Called[Name];
  }

  #tell(body: unknown): void {
    const { data } = changeForm.safeParse(body);
    if (data === undefined) return;
    for (const listener of this.#listeners) listener(data.changed);
  }
}

/**
 * The challenges that the processes of one machine share through its primary process. Each `ChannelChallengeStore` is
 * a process of its own; the leadership of one that is gone ends by its time.
 */
export function primaryChallenges(clock: Clock = monotonicClock): StoreServer<ChallengeStore> {
  const memory = new MemoryChallengeStore(clock);
  return new StoreServer<ChallengeStore>({
    service: CHALLENGES,
    functions: new Map(Object.entries<Forms>(forms).map(([name, form]) => [name, served(name, form)])),
    open: (tell) => {
      const store = memory.join();
      const pause = new ChangePause((key) => tell({ changed: key } satisfies Change));
      store.onChange((key) => pause.announce(key));
      return store;
    },
  });
}

function served(name: string, [args, result]: Forms): StoreFunction<ChallengeStore> {
  return async (store, body, lateMs) => {
    const values = args.decode(body).map((value) => older(value, lateMs));
    return result.encode(await Reflect.apply(store[name as keyof Called], store, values));
  };
}
