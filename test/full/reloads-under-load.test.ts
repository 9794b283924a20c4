import { expect, test } from '@jest/globals';
import { parseConfig } from '../../src/config/load.ts';
import { reloadsUnderLoad } from './reloads.ts';

/** A turn of the event loop must take much less than reading the configuration in one go. */
const SHARE = 1 / 5;

test('reloads under load, some of them wrong, fail no request and do not hold the event loop', async () => {
  const { load, refused, turns, text } = await reloadsUnderLoad({
    reloads: 8,
    clients: 1_000,
    deployments: 200,
  });
  expect([load.failures, refused, turns.length]).toEqual([[], 2, 8]);
  expect(load.answers).toBeGreaterThan(8);
  const before = process.threadCpuUsage();
  parseConfig(text, 'c.yaml');
  const { user, system } = process.threadCpuUsage(before);
  const sorted = turns.map(({ cpuMs }) => cpuMs).toSorted((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  expect(median).toBeLessThan(((user + system) / 1_000) * SHARE);
}, 600_000);
