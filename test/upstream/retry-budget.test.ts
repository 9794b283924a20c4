import { expect, test } from '@jest/globals';
import { RetryBudget } from '../../src/handshake/attempt-budget.ts';
import { Metrics } from '../../src/metrics/metrics.ts';

function scene() {
  const clock = { time: 0, now: () => clock.time };
  const metrics = new Metrics({ version: '0', node: '0' });
  const { retries } = metrics.deployment('d');
  const budget = new RetryBudget({ attempts: 1, budget: 0.1 }, clock, retries);
  const takeAll = (client = 'a'): number => {
    let taken = 0;
    while (budget.take('connection_broke', client)) taken += 1;
    return taken;
  };
  const counted = async (reason: string): Promise<number | undefined> => {
    const { values } = (await metrics.registry.getSingleMetric('digest_gateway_retries_total')?.get()) ?? {};
    return values?.find(({ labels }) => labels['reason'] === reason)?.value;
  };
  return { clock, budget, takeAll, counted };
}

test('3 retries per second are allowed without any requests', () => {
  const { clock, takeAll } = scene();
  expect(takeAll()).toBe(30);
  clock.time = 9_999;
  expect(takeAll()).toBe(0);
  clock.time = 10_000;
  expect(takeAll()).toBe(30);
});

test('a tenth of the requests of the last 10 s may be retried', () => {
  const { clock, budget, takeAll } = scene();
  for (let count = 0; count < 1_000; count += 1) budget.onRequest(0);
  expect(takeAll()).toBe(100);
  clock.time = 10_000;
  expect(takeAll()).toBe(30);
});

test('a client gets some when another one has used them all up, and all together twice as many at most', () => {
  const { clock, takeAll } = scene();
  expect(takeAll('breaks every connection')).toBe(30);
  expect(['b', 'c', 'd', 'e', 'f'].map(takeAll)).toEqual([8, 8, 8, 6, 0]);
  clock.time = 10_000;
  expect(takeAll('f')).toBe(30);
});

test('256 repeats after idle connections cost no retry, or as many as there are retries; the next ones cost one each', () => {
  const { clock, budget, takeAll } = scene();
  const repeat = () => budget.take('stale_connection', 'a');
  const times = (count: number) => Array.from({ length: count }, repeat);
  expect(new Set(times(256))).toEqual(new Set([true]));
  expect(takeAll()).toBe(30);
  expect(repeat()).toBe(false);
  clock.time = 10_000;
  for (let count = 0; count < 4_000; count += 1) budget.onRequest(clock.time);
  expect(new Set(times(400 + 399))).toEqual(new Set([true]));
  expect([takeAll(), repeat()]).toEqual([1, false]);
});

test('retries are counted by reason, and those that were denied', async () => {
  const { budget, takeAll, counted } = scene();
  takeAll();
  budget.take('stale_connection', 'a');
  expect([
    await counted('connection_broke'),
    await counted('stale_connection'),
    await counted('denied'),
  ]).toEqual([30, 1, 1]);
});
