import { expect, test } from '@jest/globals';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { NoncePools, type PoolUserOptions } from '../../src/challenges/pools.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import { aged, attemptWith, poolOptions, turns } from '../support/challenges.ts';

function user(change: Partial<PoolUserOptions> = {}): PoolUserOptions {
  const { sharedChallenges: _, ...options } = poolOptions();
  return { key: 'k', ...options, ...change };
}

test('upstreams with the same key and settings use one pool, as before and after a reload', () => {
  const pools = new NoncePools(new MemoryChallengeStore());
  const renew = async (): Promise<void> => undefined;
  const { pool } = pools.use(user());
  expect(pools.use(user()).pool).toBe(pool);
  for (const change of [
    { key: 'other' },
    { policy: 'exclusive' as const },
    { algorithms: ['SHA-256' as const] },
    { renew },
  ]) {
    expect(pools.use(user(change)).pool).not.toBe(pool);
  }
});

test('the last user of a pool leaves its nonces to other processes, and the next one begins anew', async () => {
  const store = new MemoryChallengeStore();
  const pools = new NoncePools(store);
  const [first, second] = [pools.use(user()), pools.use(user())];
  const { pool } = first;
  const pending = pool.open();
  const nonce = pool.offer(pending, qopChallenge('n'));
  pool.accept(attemptWith(pool, nonce), pending, undefined);
  await first.end();
  await first.end();
  expect([pool.known, await store.take('k')]).toEqual([nonce, undefined]);
  await second.end();
  expect(pool.known).toBe(undefined);
  expect(await store.take('k')).toMatchObject({ challenge: { nonce: 'n' }, count: 1 });
  expect(pools.use(user()).pool).not.toBe(pool);
});

test('releases a key in the store when its last pool ends', async () => {
  const store = new MemoryChallengeStore();
  const released: string[] = [];
  store.release = (key: string) => void released.push(key);
  const pools = new NoncePools(store);
  const uses = [
    pools.use(user()),
    pools.use(user({ policy: 'exclusive' })),
    pools.use(user({ key: 'other' })),
  ];
  const [first, second] = uses;
  await first?.end();
  expect(released).toEqual([]);
  await second?.end();
  expect(released).toEqual(['k']);
});

test('a pool takes over what the store holds once, however many users it has', async () => {
  const store = new MemoryChallengeStore();
  await store.replace('k', undefined, aged('n'), 60_000);
  let loads = 0;
  const counted: ChallengeStore = new Proxy(store, {
    get(target, name) {
      if (name === 'load') loads += 1;
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const pools = new NoncePools(counted);
  const uses = [pools.use(user()), pools.use(user())];
  await Promise.all(uses.map((use) => use.restore()));
  expect(uses[0]?.pool.known?.challenge.nonce).toBe('n');
  expect(loads).toBe(1);
});

test('a change of the store reaches the pools of its key alone', async () => {
  const place = new MemoryChallengeStore();
  const store = place.join();
  const load = store.load.bind(store);
  const asked: string[] = [];
  const recorded = Object.assign(store, {
    load: (key: string) => {
      asked.push(key);
      return load(key);
    },
  });
  const pools = new NoncePools(recorded);
  const [mine, other] = [pools.use(user()), pools.use(user({ key: 'other' }))];
  const elsewhere = place.join();
  await elsewhere.replace('k', undefined, aged('n'), 60_000);
  await elsewhere.replace('unknown', undefined, aged('m'), 60_000);
  await turns();
  expect([mine.pool.known?.challenge.nonce, other.pool.known]).toEqual(['n', undefined]);
  expect(asked).toEqual(['k']);
});

test('the latest user of a pool renews its nonces: the connections of an earlier one may be closed', async () => {
  let now = 0;
  const renewed: string[] = [];
  const renewedBy = (name: string) =>
    user({
      clock: { now: () => now },
      policy: 'exclusive',
      renew: async (nonce: Nonce) => void renewed.push(`${name}: ${nonce.challenge.nonce}`),
    });
  const pools = new NoncePools(new MemoryChallengeStore());
  const uses = [pools.use(renewedBy('first')), pools.use(renewedBy('second'))];
  const third = pools.use(renewedBy('third'));
  const { pool } = third;
  await uses[0]?.end();
  // Nonces live for 10 s.
  const learned = offer(pool, 'learned');
  pool.accept(attemptWith(pool, learned.nonce), learned.pending, undefined);
  now = 10_000;
  pool.refuse(attemptWith(pool, learned.nonce), true);
  expect(pool.lifetimeMs).toBe(10_000);
  const next = offer(pool, 'next');
  pool.accept(attemptWith(pool, next.nonce), next.pending, undefined);
  now = 17_001;
  expect(pool.reserve()).toBe(next.nonce);
  now = 17_002;
  pool.accept(attemptWith(pool, next.nonce), undefined, undefined);
  expect(renewed).toEqual(['third: next']);
  await third.end();
  now = 34_003;
  const last = offer(pool, 'last');
  pool.accept(attemptWith(pool, last.nonce), last.pending, undefined);
  now += 7_001;
  pool.accept(attemptWith(pool, pool.reserve() as Nonce), undefined, undefined);
  expect(renewed).toEqual(['third: next', 'second: last']);
});

test('a pool takes over what the pool of another credential learned', async () => {
  let now = 0;
  const clock = { now: () => now };
  const pools = new NoncePools(new MemoryChallengeStore(clock));
  const former = pools.use(user({ clock, key: 'former' })).pool;
  const { nonce, pending } = offer(former, 'n');
  former.accept(attemptWith(former, nonce), pending, undefined);
  now = 10_000;
  former.refuse(attemptWith(former, nonce), true);
  const use = pools.use(user({ clock }));
  await use.restore(former);
  expect(use.pool.lifetimeMs).toBe(10_000);
});

test('processes know for ten minutes that the upstream accepted a credential', async () => {
  const time = { now: 1_000 };
  const place = new MemoryChallengeStore({ now: () => time.now });
  const [here, elsewhere] = [new NoncePools(place.join()), new NoncePools(place.join())];
  expect(await here.acceptedAgo('k')).toBe('never');
  await elsewhere.noteAccepted('k');
  time.now += 10 * 60_000 - 1;
  expect(await here.acceptedAgo('k')).toBe(10 * 60_000 - 1);
  expect(await here.acceptedAgo('other')).toBe('never');
  time.now += 1;
  expect(await here.acceptedAgo('k')).toBe('never');
});

test('a store that fails says nothing of a credential, and stops no request', async () => {
  const store = new MemoryChallengeStore();
  await store.noteAccepted('k', 60_000);
  const fails = () => Promise.reject(new Error('the connection broke'));
  const pools = new NoncePools(Object.assign(store, { noteAccepted: fails, acceptedAgo: fails }));
  await pools.noteAccepted('k');
  expect(await pools.acceptedAgo('k')).toBe('unknown');
});

function offer(pool: ReturnType<NoncePools['use']>['pool'], nonce: string) {
  const pending = pool.open();
  return { pending, nonce: pool.offer(pending, qopChallenge(nonce)) };
}

function qopChallenge(nonce: string) {
  const { challenge } = aged(nonce);
  return { challenge: { ...challenge, qop: ['auth' as const] }, cookies: [] };
}
