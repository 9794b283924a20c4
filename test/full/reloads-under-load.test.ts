import { expect, test } from '@jest/globals';
import { reloadsUnderLoad } from './reloads.ts';

/** A turn of the event loop takes much less of the processor than the whole reload, most of which another thread does. */
const SHARE = 1 / 12;

test('reloads under load, some of them wrong, fail no request and do not hold the event loop', async () => {
  const { load, refused, turns } = await reloadsUnderLoad({ reloads: 8, clients: 1_000, deployments: 200 });
  expect([load.failures, refused, turns.length]).toEqual([[], 2, 8]);
  expect(load.answers).toBeGreaterThan(8);
  const shares = turns.map(({ cpuMs, ofProcessMs }) => cpuMs / ofProcessMs).toSorted((a, b) => a - b);
  expect(shares[Math.floor(shares.length / 2)]).toBeLessThan(SHARE);
}, 600_000);
