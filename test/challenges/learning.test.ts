import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { Learning } from '../../src/challenges/learning.ts';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { PendingChallenge } from '../../src/challenges/pending-challenges.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { SharedChallenges } from '../../src/challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import {
  type ChallengeStore,
  type HeldChallenge,
  LEARNED_MS,
  type Learned,
} from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { attemptWith, poolOptions, turns } from '../support/challenges.ts';

interface Process {
  readonly pool: NoncePool;
  readonly apart: string[];
}

function held(nonce: string, parameters = 'realm="r"'): HeldChallenge {
  const [challenge] = parseChallenges([`Digest nonce="${nonce}", ${parameters}`]);
  if (challenge === undefined) throw new Error('no challenge');
  return { challenge, cookies: [] };
}

/** Runs like a clock, and can be put forward. */
let aheadMs = 0;
const clock = { now: () => monotonicClock.now() + aheadMs };

/** Processes that share what a store holds, and hear of each other's changes at once. */
function processes(count: number): Process[] {
  const place = new MemoryChallengeStore(clock);
  return Array.from({ length: count }, (_, index) => {
    const store = place.join();
    const apart: string[] = [];
    const onBound = () => apart.push(`process ${index}`);
    const pool = new NoncePool(poolOptions({ clock, onBound }, store));
    store.onChange(() => void pool.adopt());
    return { pool, apart };
  });
}

/** Lets what was told between processes arrive. */
const told = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A nonce takes the place of the one in use, which is still good. */
function obtain(pool: NoncePool, challenge: HeldChallenge): Nonce {
  const pending = pool.open(pool.reserve());
  const nonce = pool.offer(pending, challenge);
  pool.accept(attemptWith(pool, nonce), pending, undefined);
  pool.close(pending);
  return nonce;
}

/** The pool obtains a nonce, and the other is refused with it. */
async function refusedElsewhere(owner: NoncePool, other: NoncePool, nonce: string): Promise<void> {
  obtain(owner, held(nonce));
  await told();
  const adopted = other.reserve();
  expect(adopted?.challenge.nonce).toBe(nonce);
  if (adopted !== undefined) other.refuse(attemptWith(other, adopted));
  // The next nonce is none of those that the same event could have hit.
  aheadMs += 100;
}

describe('nonces that the upstream binds to who asked for them', () => {
  test('are not shared after three in a row were refused elsewhere, and all processes know it', async () => {
    const [one, two] = processes(2) as [Process, Process];
    for (const nonce of ['a', 'b', 'c']) await refusedElsewhere(one.pool, two.pool, nonce);
    await told();
    expect([one.apart, two.apart]).toEqual([[], ['process 1']]);
    const own = obtain(two.pool, held('own'));
    await told();
    expect(one.pool.reserve()?.challenge.nonce).toBe('c');
    expect(two.pool.reserve()).toBe(own);
  });

  test('are shared again an hour later, without a word', async () => {
    const [one, two] = processes(2) as [Process, Process];
    for (const nonce of ['a', 'b', 'c']) await refusedElsewhere(one.pool, two.pool, nonce);
    await told();
    aheadMs += LEARNED_MS - 1_000;
    const own = obtain(two.pool, held('own'));
    obtain(one.pool, held('d'));
    await told();
    expect(two.pool.reserve()).toBe(own);
    aheadMs += 1_000;
    one.pool.reserve();
    obtain(one.pool, held('e'));
    await told();
    expect(two.pool.reserve()?.challenge.nonce).toBe('e');
    expect([one.apart, two.apart]).toEqual([[], ['process 1']]);
  });

  test('are shared while some of them are accepted', async () => {
    const [one, two] = processes(2) as [Process, Process];
    for (const nonce of ['a', 'b', 'c', 'd']) {
      await refusedElsewhere(one.pool, two.pool, `${nonce}1`);
      obtain(one.pool, held(`${nonce}2`));
      await told();
      const adopted = two.pool.reserve();
      if (adopted !== undefined) two.pool.accept(attemptWith(two.pool, adopted), undefined, undefined);
    }
    expect(two.apart).toEqual([]);
  });

  test('are shared again when the upstream changes its realm', async () => {
    const [one, two] = processes(2) as [Process, Process];
    for (const nonce of ['a', 'b', 'c']) await refusedElsewhere(one.pool, two.pool, nonce);
    obtain(two.pool, held('n', 'realm="another"'));
    await told();
    obtain(one.pool, held('m', 'realm="another"'));
    await told();
    expect([one.pool, two.pool].map((pool) => pool.reserve()?.challenge.nonce)).toEqual(['n', 'n']);
  });
});

describe('processes that start together', () => {
  test('wait for the one that asks for a challenge', async () => {
    const [one, two, three] = processes(3).map(({ pool }) => pool) as [NoncePool, NoncePool, NoncePool];
    const pending = await one.enter(new Cancellation());
    expect(pending).toBeInstanceOf(PendingChallenge);
    const others = [two, three].map((pool) => pool.enter(new Cancellation()));
    await told();
    const nonce = one.offer(pending as PendingChallenge, held('shared'));
    one.accept(attemptWith(one, nonce), pending as PendingChallenge, undefined);
    const got = (await Promise.all(others)) as Nonce[];
    expect(got.map(({ challenge }) => challenge.nonce)).toEqual(['shared', 'shared']);
  });

  test('go on as soon as it turns out that each needs its own', async () => {
    const [one, two] = processes(2).map(({ pool }) => pool) as [NoncePool, NoncePool];
    const pending = (await one.enter(new Cancellation())) as PendingChallenge;
    const other = two.enter(new Cancellation());
    await told();
    one.offer(pending, held('counted', 'realm="r", qop="auth"'));
    expect(await other).toBeInstanceOf(PendingChallenge);
  });

  test('go on when that one does not come back', async () => {
    const [one, two] = processes(2).map(({ pool }) => pool) as [NoncePool, NoncePool];
    await one.enter(new Cancellation());
    expect(await two.enter(new Cancellation())).toBeInstanceOf(PendingChallenge);
  });
});

describe('counts that were accepted and refused in the wrong order', () => {
  const LIFE_MS = 10_000;
  const COUNTED = 'realm="r", qop="auth"';

  /** Two attempts overtake each other when the nonce has this age; the upstream calls the late one stale. */
  function overtakenAt(pool: NoncePool, ageMs: number): void {
    const nonce = obtain(pool, held(`at ${ageMs}`, COUNTED));
    aheadMs += ageMs;
    const [first, second] = [attemptWith(pool, nonce), attemptWith(pool, nonce)];
    pool.accept(second, undefined, undefined);
    pool.refuse(first, true);
    for (const { nonce } of [first, second]) nonce.endAttempt();
  }

  test.each([
    ['say nothing at the end of its life, if they are called stale', 0.9 * LIFE_MS, 'shared'],
    ['prove before that the upstream wants them in order', 0.5 * LIFE_MS, 'exclusive'],
  ] as const)('%s', (_title, ageMs, policy) => {
    const [{ pool }] = processes(1) as [Process];
    const expired = obtain(pool, held('expired', COUNTED));
    aheadMs += LIFE_MS;
    pool.refuse(attemptWith(pool, expired), true);
    aheadMs += 100;
    overtakenAt(pool, ageMs);
    expect(pool.policy).toBe(policy);
  });
});

describe('what was learned', () => {
  const facts: Learned = {
    realm: 'r',
    algorithm: 'MD5',
    policy: 'exclusive',
    counted: false,
    portable: false,
    lifetimeMs: 20_000,
    ageMs: 0,
  };
  const nothing = ['shared', undefined];
  const knownTo = ({ pool }: Process) => {
    pool.reserve();
    return [pool.policy, pool.lifetimeMs];
  };

  /** A process that others have told what they learned so long ago. */
  async function informed(ageMs: number): Promise<Process & { place: MemoryChallengeStore }> {
    const place = new MemoryChallengeStore(clock);
    const pool = new NoncePool(poolOptions({ clock }, place));
    await place.learn('k', { ...facts, ageMs });
    await pool.restore();
    return { place, pool, apart: [] };
  }

  test.each([0, 40 * 60_000])('elsewhere %p ms ago is forgotten when it is an hour old', async (ageMs) => {
    const process = await informed(ageMs);
    expect(knownTo(process)).toEqual(['exclusive', 20_000]);
    // The real time that the test takes goes by as well.
    aheadMs += LEARNED_MS - ageMs - 1_000;
    expect(knownTo(process)).toEqual(['exclusive', 20_000]);
    aheadMs += 1_000;
    expect(knownTo(process)).toEqual(nothing);
  });

  test('with another credential is forgotten an hour after it was learned, not after it was taken over', async () => {
    const former = await informed(0);
    aheadMs += 40 * 60_000;
    const [process] = processes(1) as [Process];
    await process.pool.restore(former.pool);
    expect(knownTo(process)).toEqual(['exclusive', 20_000]);
    aheadMs += 20 * 60_000;
    expect(knownTo(process)).toEqual(nothing);
    const [late] = processes(1) as [Process];
    await late.pool.restore(former.pool);
    expect(knownTo(late)).toEqual(nothing);
  });

  test('is written with its age to a store that lost it, and not once it is forgotten', async () => {
    const { pool, place } = await informed(0);
    const empty = new MemoryChallengeStore(clock);
    for (const name of ['recall', 'learn'] as const)
      Object.assign(place, { [name]: empty[name].bind(empty) });
    aheadMs += 40 * 60_000;
    await pool.adopt();
    await turns();
    const written = await empty.recall('k');
    expect(written).toEqual({ ...facts, ageMs: expect.any(Number) });
    expect(written?.ageMs).toBeGreaterThanOrEqual(40 * 60_000);
    aheadMs += 20 * 60_000;
    await pool.adopt();
    await turns();
    expect(await empty.recall('k')).toMatchObject({
      policy: 'shared',
      portable: true,
      lifetimeMs: undefined,
    });
  });

  test('later does not keep what was learned before: everything is forgotten an hour after the first', async () => {
    const [process] = processes(1) as [Process];
    const { pool } = process;
    const expire = (name: string, lifeMs: number): void => {
      const nonce = obtain(pool, held(name));
      aheadMs += lifeMs;
      pool.refuse(attemptWith(pool, nonce), true);
      aheadMs += 100;
    };
    expire('first', 20_000);
    aheadMs += 50 * 60_000;
    expire('second', 10_000);
    expect(knownTo(process)).toEqual(['shared', expect.closeTo(10_000, -3)]);
    aheadMs += 10 * 60_000;
    expect(knownTo(process)).toEqual(nothing);
    expire('third', 30_000);
    aheadMs += 50 * 60_000;
    expect(knownTo(process)).toEqual(['shared', expect.closeTo(30_000, -3)]);
  });

  test('leaves the nonces that are known here to the freer policy', async () => {
    const { pool } = await informed(0);
    const nonce = obtain(pool, held('n', 'realm="r", qop="auth"'));
    expect([pool.reserve(), pool.reserve()]).toEqual([nonce, undefined]);
    pool.accept(attemptWith(pool, nonce), undefined, undefined);
    aheadMs += LEARNED_MS;
    expect([pool.reserve(), pool.reserve(), pool.known]).toEqual([nonce, nonce, nonce]);
  });
});

describe('facts whose writing the store does not confirm', () => {
  const learningOn = (store: ChallengeStore): Learning =>
    new Learning({
      sharedChallenges: new SharedChallenges({ key: 'k', store }),
      clock,
      policy: 'auto',
    });
  /** The upstream issues a nonce; what that teaches is told. */
  const issue = (learning: Learning, parameters: string): void => {
    const { challenge } = held('n', parameters);
    const nonce = { challenge, shareable: challenge.qop.length === 0 } as Nonce;
    if (learning.issued(nonce)) void learning.tell();
  };

  /** A process with a store that carries out each `learn` and confirms none. */
  async function setScene() {
    const place = new MemoryChallengeStore(clock);
    const store = place.join();
    const written: Learned[] = [];
    const learn = async (key: string, learned: Learned): Promise<void> => {
      written.push(learned);
      await place.learn(key, learned);
      throw new Error('the answer was lost');
    };
    const silent = Object.assign(store, { learn });
    const learning = learningOn(silent);
    issue(learning, 'realm="r"');
    await told();
    return { place, written, learning };
  }

  test('are not written again if the store has them', async () => {
    const { written, learning } = await setScene();
    for (let asked = 0; asked < 5; asked += 1) await learning.ask();
    expect(written).toHaveLength(1);
  });

  test('are written three times at most, if the store has others', async () => {
    const { place, written, learning } = await setScene();
    const others: Learned = { ...(written[0] as Learned), policy: 'single-use' };
    for (let asked = 0; asked < 5; asked += 1) {
      await place.learn('k', others);
      await learning.ask();
    }
    expect([written.length, learning.policy]).toEqual([3, 'single-use']);
  });

  test('are not written again if newer ones were confirmed meanwhile', async () => {
    const place = new MemoryChallengeStore(clock);
    const store = place.join();
    const first = Promise.withResolvers<void>();
    const written: Learned[] = [];
    const learn = (_: string, learned: Learned): Promise<void> => {
      written.push(learned);
      return written.length === 1 ? first.promise : Promise.resolve();
    };
    const learning = learningOn(Object.assign(store, { learn }));
    await learning.ask();
    issue(learning, 'realm="r"');
    issue(learning, 'realm="r", qop="auth"');
    await told();
    first.reject(new Error('the answer was lost'));
    await told();
    await place.learn('k', { ...(written[1] as Learned), policy: 'single-use' });
    await learning.ask();
    expect([written.length, learning.policy]).toEqual([2, 'single-use']);
  });

  test('are written again when something is learned', async () => {
    const { place, written, learning } = await setScene();
    const others: Learned = { ...(written[0] as Learned), portable: false };
    for (let asked = 0; asked < 5; asked += 1) {
      await place.learn('k', others);
      await learning.ask();
    }
    issue(learning, 'realm="r", qop="auth"');
    await told();
    expect(written.slice(3)).toEqual([{ ...others, counted: true, ageMs: expect.any(Number) }]);
  });
});
