import { describe, expect, test } from '@jest/globals';
import type { Nonce, NonceAttempt } from '../../src/challenges/nonce.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore, Learned } from '../../src/challenges/store/store.ts';
import { aged, attemptWith, parked, poolOptions, shareElsewhere, turns } from '../support/challenges.ts';

const facts = { realm: 'r\u00e9alm', algorithm: 'MD5', policy: 'shared', portable: true, ageMs: 0 } as const;

function scene() {
  const time = { now: 1_000_000 };
  const store = new MemoryChallengeStore({ now: () => time.now });
  const steps: string[] = [];
  const pool = new NoncePool(
    poolOptions(
      { clock: { now: () => time.now }, onStep: (to, from) => steps.push(`${from} > ${to}`) },
      store,
    ),
  );
  const obtain = (name: string, challenge = parked(name, 0)): Nonce => {
    const pending = pool.open();
    const nonce = pool.offer(pending, challenge);
    pool.accept(attemptWith(pool, nonce), pending, undefined);
    pool.close(pending);
    time.now += 10;
    return nonce;
  };
  return { time, steps, pool, store, obtain };
}

describe('refusals of a nonce that was accepted before', () => {
  test('teach nothing before an attempt is accepted that was sent later: the password may have changed', () => {
    const { time, steps, pool, obtain } = scene();
    const nonces = ['a', 'b', 'c'].map((name) => {
      const nonce = obtain(name);
      pool.refuse(attemptWith(pool, nonce));
      time.now += 10;
      return nonce;
    });
    expect(nonces.every(({ retired }) => retired)).toBe(true);
    expect(steps).toEqual([]);
    obtain('d');
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('are not confirmed by an attempt that was sent before them', () => {
    const { time, steps, pool, obtain } = scene();
    const early = obtain('early');
    const sentBefore = pool.begin(early) as NonceAttempt;
    for (const name of ['a', 'b', 'c']) {
      time.now += 10;
      const pending = pool.open(early);
      const nonce = pool.offer(pending, parked(name, 0));
      nonce.noteAccepted(1, time.now);
      pool.refuse(attemptWith(pool, nonce));
    }
    pool.accept(sentBefore, undefined, undefined);
    expect(steps).toEqual([]);
    time.now += 10;
    obtain('later');
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('are confirmed, each once, by an attempt that was sent at the time of the last one', () => {
    const { time, steps, pool, obtain } = scene();
    for (const name of ['a', 'b']) {
      time.now += 10;
      pool.refuse(attemptWith(pool, obtain(name)));
    }
    for (const name of ['c', 'd']) obtain(name);
    expect(steps).toEqual([]);
    time.now += 10;
    pool.refuse(attemptWith(pool, obtain('e')));
    obtain('f');
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('are confirmed by an attempt of the same request only: the upstream may refuse its target', () => {
    const { time, steps, pool, obtain } = scene();
    const requests = ['a', 'b', 'c', 'd'].map((name) => ({ name }));
    for (const request of requests) {
      pool.refuse(attemptWith(pool, obtain(request.name)), false, undefined, request);
      time.now += 10;
    }
    const [overtaken, higher] = [attemptWith(pool, obtain('n')), attemptWith(pool, pool.reserve() as Nonce)];
    pool.accept(higher, undefined, undefined, {});
    pool.refuse(overtaken, false, undefined, {});
    obtain('of another request');
    expect(steps).toEqual([]);
    for (const request of requests) {
      const nonce = pool.offer(pool.open(), parked(`again ${request.name}`, 0));
      pool.accept(attemptWith(pool, nonce), undefined, undefined, request);
    }
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('that are called stale teach at once', () => {
    const { time, steps, pool, obtain } = scene();
    for (const name of ['a', 'b', 'c']) {
      pool.refuse(attemptWith(pool, obtain(name)), true);
      time.now += 10;
    }
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('count once for all nonces that one event at the upstream has hit', () => {
    const { time, steps, pool, obtain } = scene();
    const nonces = ['a', 'b', 'c', 'd'].map((name) => obtain(name));
    time.now += 10;
    for (const nonce of nonces) pool.refuse(attemptWith(pool, nonce), true);
    expect(steps).toEqual([]);
  });

  test('count once with a nonce that was issued within a round trip after them', () => {
    const { time, steps, pool, obtain } = scene();
    for (const name of ['a', 'b', 'c', 'd']) {
      const nonce = obtain(name);
      const attempt = attemptWith(pool, nonce);
      time.now += 100;
      pool.refuse(attempt, true);
      time.now += 100;
    }
    expect(steps).toEqual([]);
    for (const name of ['e', 'f', 'g']) {
      time.now += 200;
      pool.refuse(attemptWith(pool, obtain(name)), true);
    }
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('although a higher count was accepted lead to exclusive, and say nothing of its age', () => {
    const { time, steps, pool, obtain } = scene();
    const nonce = obtain('n');
    time.now += 5_000;
    const [lower, higher] = [attemptWith(pool, nonce), attemptWith(pool, nonce)];
    pool.accept(higher, undefined, undefined);
    pool.refuse(lower);
    time.now += 10;
    obtain('confirms that the password is right');
    expect([steps, pool.lifetimeMs]).toEqual([['shared > exclusive'], undefined]);
  });

  test('although a higher count was accepted are not taken back by those that were under way, in any order', () => {
    const { steps, pool, obtain } = scene();
    const nonce = obtain('n');
    const crowd = Array.from({ length: 6 }, () => pool.begin(nonce) as NonceAttempt);
    const [overtaken, ...others] = crowd as [NonceAttempt, ...NonceAttempt[]];
    pool.accept(others.pop() as NonceAttempt, undefined, undefined);
    pool.refuse(overtaken, true);
    expect(steps).toEqual(['shared > exclusive']);
    for (const attempt of others.toReversed()) pool.accept(attempt, undefined, undefined);
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('while other requests used it lead to exclusive, not while none did', () => {
    const refuse = (isContested: boolean): string[] => {
      const { time, steps, pool, obtain } = scene();
      for (const name of ['a', 'b', 'c']) {
        const nonce = obtain(name);
        const [first, second] = [pool.begin(nonce), pool.begin(nonce), pool.begin(nonce)];
        pool.accept(first as NonceAttempt, undefined, undefined);
        nonce.endAttempt();
        nonce.endAttempt();
        if (!isContested) nonce.endAttempt();
        pool.refuse(second as NonceAttempt);
        if (isContested) nonce.endAttempt();
        time.now += 10;
      }
      obtain('confirms that the password is right');
      return steps;
    };
    expect([refuse(true), refuse(false)]).toEqual([['shared > exclusive'], []]);
  });
});

describe('the policy after two and after three events with nonces that came with the refusals before', () => {
  interface Event {
    /** Requests that the nonce has served one after the other, beside the one that obtained it. */
    readonly before?: number;
    /** Responses to concurrent attempts, in their order: the result, and the count of the attempt from 1. */
    readonly crowd: readonly (readonly ['accepted' | 'refused', number])[];
  }

  const early: Event = {
    crowd: [
      ['refused', 3],
      ['accepted', 1],
      ['refused', 2],
    ],
  };
  const dropped: Event = {
    crowd: [
      ['accepted', 1],
      ['refused', 3],
      ['refused', 2],
    ],
  };
  const forgotten: Event = {
    before: 5,
    crowd: [
      ['refused', 1],
      ['refused', 2],
      ['refused', 3],
    ],
  };
  const expired: Event = { before: 5, crowd: [['refused', 1]] };
  const once: Event = { crowd: [['refused', 1]] };

  function policyAfter(events: number, { before = 0, crowd }: Event, stale: boolean): string {
    const { time, pool, obtain } = scene();
    let held = parked('first', 0);
    for (let event = 1; event <= events; event += 1) {
      const nonce = obtain(`of event ${event}`, held);
      for (let served = 0; served < before; served += 1) {
        pool.accept(attemptWith(pool, nonce), undefined, undefined);
      }
      const attempts = crowd.map(() => pool.begin(nonce) as NonceAttempt);
      time.now += 20;
      held = parked(`after event ${event}`, 0);
      for (const [verdict, count] of crowd) {
        const attempt = attempts[count - 1] as NonceAttempt;
        attempt.nonce.endAttempt();
        if (verdict === 'accepted') pool.accept(attempt, undefined, undefined);
        else pool.refuse(attempt, stale, held.challenge);
      }
    }
    obtain('confirms that the password is right');
    return pool.policy;
  }

  test.each([
    ['a count came before lower ones', early, false, 'exclusive'],
    ['a count came before lower ones, called stale', early, true, 'exclusive'],
    ['a count came before lower ones, later in its life', { ...early, before: 5 }, false, 'exclusive'],
    ['a nonce was dropped in its first crowd', dropped, false, 'exclusive'],
    ['a nonce was dropped in its first crowd, called stale', dropped, true, 'exclusive'],
    ['the upstream forgot what was under way', forgotten, false, 'shared'],
    ['the upstream forgot what was under way, called stale', forgotten, true, 'shared'],
    ['a nonce expired', expired, true, 'shared'],
    ['a nonce that one request at a time used was refused', expired, false, 'shared'],
    ['a nonce served once', once, false, 'exclusive'],
  ] as const)('%s', (_title, event, stale, policy) => {
    expect([policyAfter(2, event, stale), policyAfter(3, event, stale)]).toEqual(['shared', policy]);
  });
});

test.each([
  [30_000, undefined, false],
  [30_001, undefined, true],
  [5_000, 10_000, false],
  [5_001, 10_000, true],
])(
  'three nonces of others in a row, refused at an age of %p ms while they live for %p, may have been too old: %p',
  async (ageMs, lifetimeMs, portable) => {
    const { time, pool, store } = scene();
    await store.learn('k', { ...facts, counted: false, lifetimeMs });
    await pool.restore();
    for (const name of ['a', 'b', 'c']) {
      await shareElsewhere(store, name, ageMs);
      await pool.adopt();
      const nonce = pool.reserve();
      expect(nonce?.challenge.nonce).toBe(name);
      pool.refuse(attemptWith(pool, nonce as Nonce));
      time.now += 6 * 60_000;
    }
    await turns();
    expect(await store.recall('k')).toMatchObject({ portable });
  },
);

describe('other processes are told', () => {
  test('whether nonces have a count, and how long they live', async () => {
    const { time, pool, store, obtain } = scene();
    const nonce = obtain('n', { ...parked('n', 0) });
    await turns();
    expect(await store.recall('k')).toEqual({ ...facts, counted: true, lifetimeMs: undefined });
    time.now += 9_990;
    pool.refuse(attemptWith(pool, nonce), true);
    await turns();
    expect(await store.recall('k')).toEqual({ ...facts, counted: true, lifetimeMs: 10_000 });
    const pending = pool.open();
    pool.accept(attemptWith(pool, pool.offer(pending, aged('m'))), pending, undefined);
    await turns();
    expect(await store.recall('k')).toMatchObject({ counted: false });
  });

  test('of each step of the policy', async () => {
    const { time, pool, store, obtain } = scene();
    for (const name of ['a', 'b', 'c']) {
      await turns();
      pool.refuse(attemptWith(pool, obtain(name)), true);
      time.now += 10;
    }
    await turns();
    expect(await store.recall('k')).toMatchObject({ policy: 'exclusive' });
  });

  test('that nonces live longer than was learned', async () => {
    const { time, pool, store, obtain } = scene();
    const nonce = obtain('n');
    time.now += 9_990;
    pool.refuse(attemptWith(pool, nonce), true);
    await turns();
    expect(await store.recall('k')).toMatchObject({ lifetimeMs: 10_000 });
    const longer = obtain('m');
    time.now += 20_000;
    pool.accept(attemptWith(pool, longer), undefined, undefined);
    await turns();
    expect(await store.recall('k')).toMatchObject({ lifetimeMs: undefined });
  });

  test('nothing that is no news', async () => {
    const { time, pool, store, obtain } = scene();
    const written = learnsOf(store);
    for (const name of ['a', 'b']) {
      obtain(name);
      await turns();
    }
    time.now += 1_000;
    pool.refuse(attemptWith(pool, obtain('c')), true);
    await turns();
    expect(written).toEqual([{ ...facts, counted: true, lifetimeMs: undefined }]);
  });

  test('everything once more if the store has lost it', async () => {
    const { time, pool, store, obtain } = scene();
    await pool.restore();
    obtain('n');
    await turns();
    const empty = new MemoryChallengeStore({ now: () => time.now });
    Object.assign(store, {
      recall: () => empty.recall('k'),
      learn: (_: string, all: Learned) => empty.learn('k', all),
    });
    await pool.adopt();
    await turns();
    expect(await empty.recall('k')).toEqual({ ...facts, counted: true, lifetimeMs: undefined });
  });

  test('nothing while nothing is known of the upstream', async () => {
    const { pool, store } = scene();
    const written = learnsOf(store);
    await pool.restore();
    await turns();
    expect(written).toEqual([]);
  });
});

describe('what another process learned does not count', () => {
  test('if something was learned here while the store was asked', async () => {
    const { time, pool, store, obtain } = scene();
    await pool.restore();
    const nonce = obtain('n');
    await turns();
    const { promise: late, resolve: reply } = Promise.withResolvers<Learned>();
    const written = learnsOf(store);
    Object.assign(store, { recall: () => late });
    const adopted = pool.adopt();
    time.now += 10_000;
    pool.refuse(attemptWith(pool, nonce), true);
    reply({ ...facts, policy: 'exclusive', counted: true, lifetimeMs: undefined });
    await adopted;
    await turns();
    expect([pool.policy, written.length]).toEqual(['shared', 1]);
  });

  test('if it holds for another realm or algorithm', async () => {
    for (const change of [{ realm: 'another' }, { algorithm: 'SHA-256' }]) {
      const { pool, store, obtain } = scene();
      obtain('n');
      await store.learn('k', { ...facts, ...change, policy: 'exclusive', counted: true, lifetimeMs: 5_000 });
      await pool.restore();
      expect([pool.policy, pool.lifetimeMs]).toEqual(['shared', undefined]);
    }
  });
});

test('of an upstream with another realm nothing is known', async () => {
  const { pool, store, obtain } = scene();
  await store.learn('k', { ...facts, policy: 'exclusive', counted: true, lifetimeMs: 5_000 });
  await pool.restore();
  expect([pool.policy, pool.lifetimeMs]).toEqual(['exclusive', 5_000]);
  const { challenge } = parked('n', 0);
  obtain('n', { ...parked('n', 0), challenge: { ...challenge, realm: 'another' } });
  expect([pool.policy, pool.lifetimeMs]).toEqual(['shared', undefined]);
});

describe('with the policy exclusive, a nonce without a count that is accepted again', () => {
  async function exclusive() {
    const it = scene();
    await it.store.learn('k', { ...facts, policy: 'exclusive', counted: false, lifetimeMs: undefined });
    await it.pool.restore();
    const obtainUncounted = (name: string): Nonce => it.obtain(name, aged(name) as never);
    const use = (): void =>
      it.pool.accept(attemptWith(it.pool, it.pool.reserve() as Nonce), undefined, undefined);
    return { ...it, obtainUncounted, use };
  }

  test('says nothing if it was used as before', async () => {
    const { pool, steps, obtainUncounted, use } = await exclusive();
    obtainUncounted('n');
    use();
    expect([pool.policy, steps]).toEqual(['exclusive', []]);
  });
});

/** The values that are written to the store from now on. */
function learnsOf(store: ChallengeStore): Learned[] {
  const written: Learned[] = [];
  const learn = store.learn.bind(store);
  Object.assign(store, {
    learn: (key: string, learned: Learned) => {
      written.push(learned);
      return learn(key, learned);
    },
  });
  return written;
}
