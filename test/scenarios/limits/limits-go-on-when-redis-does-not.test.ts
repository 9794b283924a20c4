import { expect, test } from '@jest/globals';
import { CALL_MS, type Load, saturate, useLimitedProcesses } from '../../support/limited-processes.ts';
import { until } from '../../support/until.ts';

/** So low that the clients want more than that on a slow machine, too. */
const RATE = 20;
const start = useLimitedProcesses();
const limits = { rate: `${RATE}/s`, burst: 2 * RATE };

/** Since the end of the load before, which left nothing of the burst. */
function expectTheRateAlone({ passed, endedAt }: Load, before: Load): void {
  const set = (RATE * (endedAt - before.endedAt)) / 1000;
  expect(passed / set).toBeGreaterThan(0.75);
  // A second burst would let half as much more pass; a process that stood still has a part of that left over.
  expect(passed / set).toBeLessThan(1.4);
}

test.each(['kill', 'hang'] as const)(
  'after a %s each process goes on with its part, nobody waits, and there is no second burst when it is back',
  async (fault) => {
    const { redis, processes } = await start(2, limits);
    const burst = await saturate(processes, 1_500);

    await redis[fault]();
    const without = await saturate(processes, 4_000);
    expectTheRateAlone(without, burst);
    expect(without.usualMs).toBeLessThan(CALL_MS);

    await (fault === 'kill' ? redis.restart() : redis.goOn());
    const back = async (): Promise<boolean> => {
      const up = processes.map(({ metric }) => metric('digest_gateway_store_up'));
      return (await Promise.all(up)).every((each) => each === 1);
    };
    const returning = saturate(processes, 4_000);
    await until(back);
    expectTheRateAlone(await returning, without);
    for (const { metric } of processes) {
      expect(await metric('digest_gateway_store_errors_total', { operation: 'limits' })).toBeGreaterThan(0);
    }
  },
);
