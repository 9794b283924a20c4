import { expect, test } from '@jest/globals';
import { type Load, saturate, useLimitedProcesses } from '../../support/limited-processes.ts';

const start = useLimitedProcesses();
/** Three seconds' worth, so that a machine that stands still for a moment loses nothing of the rate. */
const BURST = 90;
/** So low that the clients want more than that on a slow machine, too. */
const RATE = 30;
const CLIENTS = 8;
const limits = { rate: `${RATE}/s`, burst: BURST };

/**
 * The requests admitted and the tokens left make up the limit, within 15 %, a fraction of one burst: no token is given
 * twice or lost. Few tokens are left: no process keeps those that another one needs.
 */
function expectWhatIsSet(...loads: readonly Load[]): void {
  const sum = (of: (load: Load) => number): number => loads.reduce((total, load) => total + of(load), 0);
  const set = BURST + RATE * sum(({ seconds }) => seconds);
  const left = loads.at(-1)?.left ?? Number.NaN;
  const share = (sum(({ passed }) => passed) + left) / set;
  expect(share).toBeGreaterThan(0.85);
  expect(share).toBeLessThan(1.15);
  expect(left / BURST).toBeLessThan(0.25);
}

test('from a cold start, under the same load each', async () => {
  const { processes } = await start(4, limits);
  expectWhatIsSet(await saturate(processes, 5_000, CLIENTS));
});

test('when one process has all the load, and then another', async () => {
  const { processes } = await start(4, limits);
  const first = await saturate(processes.slice(0, 1), 3_000, CLIENTS);
  const second = await saturate(processes.slice(1, 2), 3_000, CLIENTS);
  expectWhatIsSet(first, second);
});
