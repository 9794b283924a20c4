import { afterEach, describe, expect, test } from '@jest/globals';
import { deploymentInterval } from '../../src/control/interval.ts';
import { Sampler } from '../../src/control/sampler.ts';
import { noTotals, readTotals, type Totals } from '../../src/control/totals.ts';
import { until } from '../support/until.ts';
import { countedMetrics } from './console-source.ts';

let sampler: Sampler | undefined;

afterEach(() => sampler?.close());

describe('totals', () => {
  test('are those of the metrics, by deployment and by client', async () => {
    const { metrics, values } = countedMetrics();
    const request = { deployment: 'a', operation: 'read', client: 'reporting', code: '' };
    metrics.requests.inc({ ...request, status: '200' }, 5);
    metrics.requests.inc({ ...request, operation: 'other', status: '503' }, 2);
    metrics.requests.inc({ ...request, status: '502', code: 'upstream-unreachable' });
    metrics.requests.inc({ ...request, status: '403', code: 'client-forbidden', client: 'archive' }, 4);
    metrics.requests.inc({ ...request, status: '499', code: 'client-closed' });
    metrics.challenges.inc({ deployment: 'a', reason: 'cold' });
    metrics.challenges.inc({ deployment: 'a', reason: 'stale' }, 2);
    metrics.deployment('a').outcome('throttled').inc(2);
    metrics.deployment('a').outcome('maintenance').inc(0);
    metrics.requestsInFlight.inc({ deployment: 'a' }, 3);
    metrics.deployment('a').operation('read').duration.observe(0.003);
    metrics.deployment('a').operation('other').duration.observe(70);
    const { deployments, clients } = await readTotals(values, 7);
    const { durations, ...counts } = deployments.get('a') ?? noTotals();
    expect(counts).toEqual({
      requests: 13,
      classes: new Map([
        ['2', 5],
        ['5', 3],
        ['4', 5],
      ]),
      errors: 3,
      refused: 4,
      challenges: 3,
      inFlight: 3,
      outcomes: new Map([
        ['throttled', 2],
        ['maintenance', 0],
      ]),
      refusedCodes: new Map([['client-forbidden', 4]]),
      errorCodes: new Map([
        ['', 2],
        ['upstream-unreachable', 1],
      ]),
    });
    expect([durations.get(0.0025), durations.get(0.005), durations.get(60)]).toEqual([0, 1, 1]);
    expect(durations.get(Number.POSITIVE_INFINITY)).toBe(2);
    expect(clients.get('archive')).toEqual({ requests: 4, refusals: new Map([['client-forbidden', 4]]) });
    expect(clients.get('reporting')).toEqual({ requests: 9, refusals: new Map() });
  });
});

describe('percentiles', () => {
  const durations = (...counts: [number, number][]) => ({ ...noTotals(), durations: new Map(counts) });

  test('lie evenly spread in their bucket', () => {
    const after = durations([0.1, 0], [0.2, 100], [Number.POSITIVE_INFINITY, 100]);
    expect(deploymentInterval(undefined, after, 1000).latency).toEqual({ p50: 0.15, p95: 0.195, p99: 0.199 });
  });

  test('count what came since, and above the last bound tell that bound', () => {
    const before = durations([0.1, 90], [0.2, 90], [Number.POSITIVE_INFINITY, 90]);
    const after = durations([0.1, 90], [0.2, 91], [Number.POSITIVE_INFINITY, 100]);
    expect(deploymentInterval(before, after, 1000).latency).toEqual({ p50: 0.2, p95: 0.2, p99: 0.2 });
    expect(deploymentInterval(before, before, 1000).latency).toBeUndefined();
  });
});

describe('samples', () => {
  const totals = (at: number): Totals => ({ at, deployments: new Map(), clients: new Map() });

  test('are kept for a minute and no longer', async () => {
    let taken = 0;
    const read = async () => {
      taken += 1;
      return totals(taken * 5000);
    };
    sampler = new Sampler(read, 1, () => {});
    await until(() => taken > 30);
    sampler.close();
    const latest = await sampler.now();
    const minute = sampler.before(latest, 60_000);
    expect(latest.at - minute.at).toBe(60_000);
    expect(sampler.before(latest, 600_000)).toEqual(totals(minute.at - 5000));
  });

  test('one that fails is told and left out', async () => {
    const errors: unknown[] = [];
    let taken = 0;
    const read = async () => {
      taken += 1;
      if (taken === 2) throw new Error('no');
      return totals(taken * 1000);
    };
    sampler = new Sampler(read, 1, (error) => errors.push(error));
    const { histories } = sampler;
    await until(() => histories.read('a', '15m').times.length > 1);
    expect(errors).toHaveLength(1);
    expect(histories.read('a', '15m').times[0]).toBe(3000);
  });
});
