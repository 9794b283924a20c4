import { expect, test } from '@jest/globals';
import { saturate, useLimitedProcesses } from '../../support/limited-processes.ts';

const LIMIT_MS = 60_000;
const start = useLimitedProcesses();
const limits = { rate: '40/s', burst: 40 };

/** Burst and rate, within 5 %. */
function expectWhatIsSet({ passed, seconds }: { passed: number; seconds: number }): void {
  const set = 40 + 40 * seconds;
  expect(passed / set).toBeGreaterThan(0.95);
  expect(passed / set).toBeLessThan(1.05);
}

test(
  'from a cold start, under the same load each',
  async () => {
    const { processes } = await start(4, limits);
    expectWhatIsSet(await saturate(processes, 5_000));
  },
  LIMIT_MS,
);

test(
  'when one process has all the load, and then another',
  async () => {
    const { processes } = await start(4, limits);
    const first = await saturate(processes.slice(0, 1), 3_000);
    const second = await saturate(processes.slice(1, 2), 3_000);
    expectWhatIsSet({ passed: first.passed + second.passed, seconds: first.seconds + second.seconds });
  },
  LIMIT_MS,
);
