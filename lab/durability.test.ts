import { expect, test } from '@jest/globals';
import { runPowerLosses } from './durability/power-losses.ts';

// Kills of gateways, processes and workers: test/full/crash.test.ts.
test('after a loss of power each response has its record with fsync, and with write the loss is told', async () => {
  const { counts, findings } = await runPowerLosses({ seed: 1, losses: 2, longestMs: 500 });
  expect(findings).toEqual([]);
  expect(counts.fsync).toMatchObject({ losses: 1, lost: 0 });
  expect(counts.fsync.responses).toBeGreaterThan(8);
  // Otherwise the disk forgets nothing, and the line above says nothing.
  expect(counts.write).toMatchObject({ losses: 1, withLost: 1, told: 1 });
});
