import { describe, expect, test } from '@jest/globals';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { NoncePool, type PoolOptions } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { HeldChallenge, NoncePolicy } from '../../src/challenges/store/store.ts';
import { attemptWith, parked, poolOptions } from '../support/challenges.ts';

const LIFE_MS = 10_000;

function held(nonce: string): HeldChallenge {
  return { challenge: parked(nonce, 0).challenge, cookies: [] };
}

function scene(policy: NoncePolicy | 'auto', more: Partial<PoolOptions> = {}) {
  const time = { now: 0 };
  const renewed: Nonce[] = [];
  const steps: string[] = [];
  const store = new MemoryChallengeStore({ now: () => time.now });
  const change: Partial<PoolOptions> = {
    clock: { now: () => time.now },
    policy,
    onStep: (to, from) => steps.push(`${from} > ${to}`),
    renew: async (nonce) => void renewed.push(nonce),
    ...more,
  };
  const pool = new NoncePool(poolOptions(change, store));
  const obtain = (name: string, nextnonce?: string): Nonce => {
    const pending = pool.open();
    const nonce = pool.offer(pending, held(name));
    pool.accept(attemptWith(pool, nonce), pending, nextnonce);
    pool.close(pending);
    return nonce;
  };
  const use = (nonce: Nonce, nextnonce?: string): void =>
    pool.accept(attemptWith(pool, nonce), undefined, nextnonce);
  /** The upstream is seen to refuse a nonce for its age. */
  const learnLife = (): void => {
    const nonce = obtain('lived');
    time.now += LIFE_MS;
    pool.refuse(attemptWith(pool, nonce), true);
    expect(pool.lifetimeMs).toBe(LIFE_MS);
  };
  return { time, renewed, steps, pool, store, obtain, use, learnLife };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('with the policy exclusive', () => {
  test('a nonce serves one request at a time, the youngest first', () => {
    const { pool, obtain, use } = scene('exclusive');
    const [first, second] = [obtain('1'), obtain('2')];
    expect([pool.reserve(), pool.reserve(), pool.reserve()]).toEqual([second, first, undefined]);
    use(first);
    expect([pool.reserve(), pool.reserve()]).toEqual([first, undefined]);
  });

  test('a nonce that was refused is not used again', () => {
    const { pool, obtain, use } = scene('exclusive');
    const nonce = obtain('1');
    const taken = pool.reserve() as Nonce;
    const [good, refused] = [attemptWith(pool, taken), attemptWith(pool, taken)];
    pool.refuse(refused);
    pool.accept(good, undefined, undefined);
    expect([nonce.retired, pool.reserve()]).toEqual([true, undefined]);
    const other = obtain('2');
    other.retire();
    expect(pool.reserve()).toBe(undefined);
    use(obtain('3'));
    expect(pool.reserve()?.challenge.nonce).toBe('3');
  });

  test('a nonce that the upstream names for the next request takes its place', () => {
    const { pool, obtain } = scene('exclusive');
    obtain('1', '2');
    expect(pool.reserve()?.challenge.nonce).toBe('2');
    expect(pool.reserve()).toBe(undefined);
  });

  test('a nonce that is too old is not used', () => {
    const { pool, time, learnLife, obtain } = scene('exclusive');
    learnLife();
    const nonce = obtain('1');
    time.now += LIFE_MS - 1;
    expect(pool.reserve()).toBe(nonce);
    pool.accept(attemptWith(pool, nonce), undefined, undefined);
    time.now += 1;
    expect(pool.reserve()).toBe(undefined);
  });

  test('once in a while, one that is older than nonces live is tried', () => {
    const { pool, time, learnLife, obtain } = scene('exclusive');
    learnLife();
    time.now += 60_000;
    const [older, old] = [obtain('older'), obtain('old')];
    time.now += 1.05 * LIFE_MS - 1;
    expect(pool.reserve()).toBe(undefined);
    const again = obtain('again');
    time.now += 1.05 * LIFE_MS;
    expect(pool.reserve()).toBe(again);
    expect([older.trial, old.trial, again.trial]).toEqual([undefined, undefined, 'age']);
    obtain('another');
    time.now += 1.05 * LIFE_MS;
    expect(pool.reserve()).toBe(undefined);
    pool.accept(attemptWith(pool, again), undefined, undefined);
    expect([again.trial, pool.lifetimeMs]).toEqual([undefined, undefined]);
  });

  test('a nonce that is used is renewed once, towards the end of its life', () => {
    const { time, renewed, learnLife, obtain, use } = scene('exclusive');
    learnLife();
    const nonce = obtain('1');
    time.now += 0.7 * LIFE_MS;
    use(nonce);
    expect(renewed).toEqual([]);
    time.now += 1;
    use(nonce);
    use(nonce);
    expect(renewed).toEqual([nonce]);
  });

  test('a nonce that no request has used is not renewed', () => {
    const { pool, time, renewed, learnLife } = scene('exclusive');
    learnLife();
    const pending = pool.open();
    pool.offer(pending, held('1'));
    time.now += 0.9 * LIFE_MS;
    pool.acceptUntried(pending);
    expect([renewed, pool.reserve()?.challenge.nonce]).toEqual([[], '1']);
  });

  test('a nonce towards the end of its life goes on where nonces are not renewed', () => {
    const { pool, time, learnLife, obtain, use } = scene('exclusive', { renew: undefined });
    learnLife();
    const nonce = obtain('1');
    time.now += 0.9 * LIFE_MS;
    use(nonce);
    expect(pool.reserve()).toBe(nonce);
  });

  test('a nonce that another process left is used after those that were obtained here', async () => {
    const { pool, store, obtain } = scene('exclusive');
    await store.park('k', parked('left', 3), 60_000);
    const own = obtain('own');
    await pool.restore();
    expect(pool.reserve()).toBe(own);
    const left = pool.reserve();
    expect([left?.challenge.nonce, left?.begin(0)?.nc]).toEqual(['left', 4]);
  });
});

describe('with the policy single-use', () => {
  test('a nonce serves one request, and the one that the upstream names for the next serves another', () => {
    const { pool, obtain, use } = scene('single-use');
    obtain('1');
    expect(pool.reserve()).toBe(undefined);
    obtain('2', '3');
    const next = pool.reserve() as Nonce;
    expect(next.challenge.nonce).toBe('3');
    use(next);
    expect(pool.reserve()).toBe(undefined);
  });

  test('a nonce that served is left to no other process', async () => {
    const { pool, store, obtain } = scene('single-use');
    obtain('1');
    await pool.handOver();
    expect(await store.take('k')).toBe(undefined);
  });

  test('one that another process has used is not used here', async () => {
    const { pool, store } = scene('single-use');
    await store.park('k', parked('used', 1), 60_000);
    await store.park('k', parked('fresh', 0), 60_000);
    await pool.restore();
    expect([pool.reserve()?.challenge.nonce, pool.reserve()]).toEqual(['fresh', undefined]);
  });
});

/** Three nonces are refused when they are used for the second time. */
function refuseReuses({ pool, time, obtain }: ReturnType<typeof scene>): void {
  for (const name of ['a', 'b', 'c']) {
    time.now += 10;
    const nonce = obtain(name);
    time.now += 10;
    pool.refuse(attemptWith(pool, nonce));
    time.now += 10;
  }
  obtain('confirms that the password is right');
}

/** The next nonce that is obtained is to try the freer policy. */
async function untilTrial({ time, obtain }: ReturnType<typeof scene>): Promise<void> {
  time.now += 10 * 60_000;
  obtain('asks for the trial');
  await turn();
}

describe('with a learned policy', () => {
  test('reuses that are refused lead to exclusive and then single-use', () => {
    const it = scene('auto');
    refuseReuses(it);
    expect(it.steps).toEqual(['shared > exclusive']);
    const left = [it.pool.reserve()?.challenge.nonce, it.pool.reserve()];
    expect(left).toEqual(['confirms that the password is right', undefined]);
    refuseReuses(it);
    expect([it.steps, it.pool.policy]).toEqual([
      ['shared > exclusive', 'exclusive > single-use'],
      'single-use',
    ]);
  });

  test('after ten minutes, one nonce is used once more; accepted, it leads one step back', async () => {
    const it = scene('auto');
    refuseReuses(it);
    refuseReuses(it);
    await untilTrial(it);
    expect(it.pool.reserve()).toBe(undefined);
    const trial = it.obtain('on trial');
    expect([trial.trial, it.pool.reserve()]).toEqual(['policy', trial]);
    const again = attemptWith(it.pool, trial);
    expect(again.nc).toBe(2);
    it.pool.accept(again, undefined, undefined);
    expect([it.pool.policy, it.steps.at(-1)]).toEqual(['exclusive', 'single-use > exclusive']);
  });

  test('a trial that is refused ends the nonce, and the policy stays', async () => {
    const it = scene('auto');
    refuseReuses(it);
    refuseReuses(it);
    await untilTrial(it);
    const trial = it.obtain('on trial');
    expect(it.pool.reserve()).toBe(trial);
    it.pool.refuse(attemptWith(it.pool, trial));
    expect([it.pool.policy, it.pool.reserve(), it.steps.length]).toEqual(['single-use', undefined, 2]);
    it.time.now += 60_000;
    it.obtain('too early for another trial');
    await turn();
    expect(it.obtain('not on trial').trial).toBe(undefined);
  });

  test('from exclusive, the next two counts go out in the wrong order; accepted, they lead to shared', async () => {
    const it = scene('auto');
    refuseReuses(it);
    await untilTrial(it);
    const trial = it.obtain('on trial');
    expect([trial.trial, it.pool.reserve()]).toEqual(['policy', trial]);
    const higher = attemptWith(it.pool, trial);
    expect([higher.nc, trial.hasCountLeftOut]).toEqual([3, true]);
    it.pool.accept(higher, undefined, undefined);
    expect([it.pool.reserve(), it.pool.policy, trial.trial]).toEqual([trial, 'exclusive', 'policy']);
    const lower = attemptWith(it.pool, trial);
    expect(lower.nc).toBe(2);
    it.pool.accept(lower, undefined, undefined);
    expect([it.pool.policy, it.steps.at(-1), trial.trial]).toEqual([
      'shared',
      'exclusive > shared',
      undefined,
    ]);
    expect(attemptWith(it.pool, trial).nc).toBe(4);
    expect([it.pool.reserve(), it.pool.reserve()]).toEqual([trial, trial]);
  });

  test('the count that was left out goes out although the upstream names another nonce in between', async () => {
    const it = scene('auto');
    refuseReuses(it);
    await untilTrial(it);
    const trial = it.obtain('on trial');
    it.pool.reserve();
    it.use(trial, 'next');
    expect([it.pool.reserve(), it.pool.reserve()?.challenge.nonce]).toEqual([trial, 'next']);
    expect(attemptWith(it.pool, trial).nc).toBe(2);
  });

  test('a nonce that was refused meanwhile is not tried', async () => {
    const it = scene('auto');
    refuseReuses(it);
    const nonce = it.obtain('1');
    const [good, refused] = [attemptWith(it.pool, nonce), attemptWith(it.pool, nonce)];
    it.pool.refuse(refused, true);
    await untilTrial(it);
    it.pool.accept(good, undefined, undefined);
    expect(it.obtain('2').trial).toBe('policy');
  });

  test('counts in the wrong order that are refused put the next trial off', async () => {
    const it = scene('auto');
    refuseReuses(it);
    await untilTrial(it);
    const trial = it.obtain('on trial');
    it.pool.reserve();
    it.pool.accept(attemptWith(it.pool, trial), undefined, undefined);
    it.pool.refuse(attemptWith(it.pool, trial));
    it.time.now += 2 * 60_000 - 1;
    it.obtain('too early for another trial');
    await turn();
    expect(it.obtain('not on trial').trial).toBe(undefined);
    it.time.now += 1;
    it.obtain('asks for the trial');
    await turn();
    expect(it.obtain('on trial again').trial).toBe('policy');
  });
});
