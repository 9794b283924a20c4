import { type Clock, monotonicClock } from '../../base/clock.ts';
import { type StoreFunction, StoreServer } from '../../base/message-calls.ts';
import { ChangePause } from './change-feed.ts';
import { type AgedValue, type CallForms, CHALLENGES, type Change, callForms, readable } from './channel.ts';
import { MemoryChallengeStore } from './memory.ts';
import type { AgedChallenge, ChallengeStore } from './store.ts';
import { readHeld, readLearned, readParked, writeHeld, writeLearned, writeParked } from './stored-form.ts';

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
