import { expect, test } from '@jest/globals';
import { COUNTS, startLeakScene } from '../../support/leak-scene.ts';

const REQUESTS = 2_000;
const WARM_UP = 400;
const SETTLE_MS = 120_000;
/** A small run cannot tell a leak from code that is compiled; test/bench/leaks.ts can. */
const HEAP_GROWTH = 16 * 2 ** 20;
const LIMIT_MS = 600_000;

test(
  'holds no more sockets, timers, promises and requests after aborts, resets, timeouts and stale nonces than before',
  async () => {
    await using scene = await startLeakScene(1);
    await scene.mix.run(WARM_UP);
    const before = await scene.settled();
    await scene.mix.run(REQUESTS);
    const after = await scene.settledAs(before, SETTLE_MS);
    const counts = (held: typeof before) => COUNTS.map((name) => [name, held[name]]);
    expect(counts(after)).toEqual(counts(before));
    expect(after).toMatchObject({ inFlight: 0, connected: 0, running: 0, pending: 0 });
    expect(after.heap - before.heap).toBeLessThan(HEAP_GROWTH);
    expect(scene.mix.seen.filter(([outcome]) => outcome.endsWith('(unexpected)'))).toEqual([]);
    expect(await scene.stale()).toBeGreaterThan(0);
  },
  LIMIT_MS,
);
