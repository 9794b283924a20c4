import { afterEach, describe, expect, test } from '@jest/globals';
import { Histories, Sampler } from '../../src/control/history.ts';
import {
  type DeploymentTotals,
  deploymentInterval,
  flowKey,
  noTotals,
  readTotals,
  sharedWith,
  type Totals,
} from '../../src/control/totals.ts';
import { until } from '../support/until.ts';
import { countedMetrics } from './console-source.ts';

const EVERY_MS = 5_000;

/** The totals of deployments at one moment. */
function totalsAt(at: number, deployments: Readonly<Record<string, Partial<DeploymentTotals>>>): Totals {
  const entries = Object.entries(deployments).map(
    ([name, totals]) => [name, { ...noTotals(), ...totals }] as const,
  );
  return { at, deployments: new Map(entries), clients: new Map(), flows: new Map() };
}

/** Deployment `a` after this many samples, with 10 responses of 200 and 5 of 503 in each. */
function steady(samples: number): Totals {
  const requests = samples * 15;
  const classes = new Map([
    ['2', samples * 10],
    ['5', samples * 5],
  ]);
  return totalsAt(samples * EVERY_MS, { a: { requests, classes } });
}

function filled(samples: number): Histories {
  const histories = new Histories();
  for (let count = 0; count <= samples; count += 1) histories.add(steady(count));
  return histories;
}

describe('the history of a deployment', () => {
  test.each([
    ['15m', 5, 180],
    ['3h', 60, 180],
    ['24h', 300, 288],
  ] as const)('%s: a point every %d s, %d of them', (range, seconds, points) => {
    const { times, series } = filled(20_000).read('a', range);
    const ended = times.slice(0, points);
    expect(ended).toHaveLength(points);
    expect(times.length).toBeLessThanOrEqual(points + 1);
    expect(ended[1]).toBe((ended[0] ?? 0) + seconds * 1000);
    expect(new Set(series['2xx'])).toEqual(new Set([2]));
    expect(new Set(series['5xx'])).toEqual(new Set([1]));
    expect(new Set(series['3xx'])).toEqual(new Set([0]));
    expect(new Set(series.p50)).toEqual(new Set([null]));
  });

  test('shows an interval that has not ended as its last point', () => {
    const { times, series } = filled(13).read('a', '3h');
    expect(times).toEqual([60_000, 65_000]);
    expect(series['2xx']).toEqual([2, 2]);
  });

  test('has percentiles of the whole interval, not means of shorter ones', () => {
    const histories = new Histories();
    // A thousand fast requests in the first samples, ten slow ones in the last.
    const durations = (fast: number, slow: number) =>
      new Map([
        [0.1, fast],
        [10, fast + slow],
        [Number.POSITIVE_INFINITY, fast + slow],
      ]);
    histories.add(totalsAt(0, { a: { durations: durations(0, 0) } }));
    for (let count = 1; count <= 12; count += 1) {
      histories.add(totalsAt(count * EVERY_MS, { a: { durations: durations(1000, count === 12 ? 5 : 0) } }));
    }
    expect(histories.read('a', '3h').series.p99).toEqual([0.0995]);
    expect(histories.read('a', '15m').series.p99.at(-1)).toBe(9.9);
  });

  test('is empty where a deployment was not there, and is forgotten when all of it has passed', () => {
    const histories = new Histories();
    histories.add(totalsAt(0, {}));
    histories.add(totalsAt(1000, {}));
    histories.add(totalsAt(2000, { a: { classes: new Map([['2', 3]]) } }));
    histories.add(totalsAt(3000, {}));
    expect(histories.read('a', '15m').series['2xx']).toEqual([null, 3, null]);
    for (let at = 4000; at < 200_000; at += 1000) histories.add(totalsAt(at, {}));
    expect(Object.keys(histories.sparklines().deployments)).toEqual([]);
  });

  test('of a name that does not exist has no values', () => {
    expect(filled(2).read('b', '15m').series['2xx']).toEqual([null, null]);
  });

  test('begins again when the clock of the host is set back', () => {
    const histories = filled(10);
    histories.add(totalsAt(1000, {}));
    histories.add(totalsAt(6000, {}));
    expect(histories.read('a', '15m').times).toEqual([6000]);
  });
});

describe('sparklines', () => {
  test('are means of four points, which keep their place as points are added', () => {
    const { deployments } = filled(10).sparklines();
    expect(deployments['a']).toEqual({ requests: [3, 3, 3], errors: [1, 1, 1] });
    const points = (samples: number) => filled(samples).sparklines().deployments['a']?.requests.length;
    expect([points(1000), points(1001)]).toEqual([45, 46]);
  });
});

test('the total is of all deployments, with the share of requests that waited for no challenge', () => {
  const histories = new Histories();
  const two = new Map([['2', 20]]);
  histories.add(totalsAt(0, {}));
  histories.add(
    totalsAt(EVERY_MS, {
      a: { classes: two, accepted: 8, awaited: 2, challenges: 3 },
      '': { classes: new Map([['4', 5]]) },
      b: { classes: two, accepted: 2 },
    }),
  );
  const { times, series } = histories.sparklines().total;
  expect([times, series['2xx'], series['4xx'], series.challenges, series.reuse]).toEqual([
    [EVERY_MS],
    [8],
    [1],
    [0.6],
    [0.8],
  ]);
  expect(histories.read('', '15m').series.reuse).toEqual([null]);
});

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
    metrics.challenges.inc({ deployment: 'a', reason: 'ahead' });
    metrics.deployment('a').upstreamAttempts.ok.inc(8);
    metrics.deployment('a').upstreamAttempts.error.inc();
    metrics.deployment('a').outcome('throttled').inc(2);
    metrics.deployment('a').outcome('maintenance').inc(0);
    metrics.requestsInFlight.inc({ deployment: 'a' }, 3);
    metrics.deployment('a').operation('read').duration.observe(0.003);
    metrics.deployment('a').operation('other').duration.observe(70);
    const begun = Date.now();
    metrics.clientLastSeen.happened('archive');
    const { deployments, clients } = await readTotals(values, 7);
    const { durations, ...counts } = deployments.get('a') ?? noTotals();
    expect(counts).toEqual({
      requests: 13,
      classes: new Map([
        ['2', 5],
        ['5', 3],
        ['4', 5],
      ]),
      challenges: 4,
      awaited: 3,
      accepted: 8,
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
    expect(clients.get('archive')).toEqual({
      requests: 4,
      refusals: new Map([['client-forbidden', 4]]),
      lastSeen: expect.any(Number),
    });
    expect(Math.round(clients.get('archive')?.lastSeen ?? 0)).toBeGreaterThanOrEqual(begun);
    expect(clients.get('reporting')).toEqual({ requests: 9, refusals: new Map(), lastSeen: null });
  });

  test('count a response that was broken off as failed, unless the client was the cause', async () => {
    const { metrics, values } = countedMetrics();
    const request = { deployment: 'a', operation: 'read', client: 'reporting', status: '200' };
    metrics.requests.inc({ ...request, code: '' }, 5);
    metrics.requests.inc({ ...request, code: 'upstream-protocol' }, 4);
    metrics.requests.inc({ ...request, code: 'client-timeout' }, 3);
    metrics.requests.inc({ ...request, code: 'request-timeout' }, 2);
    const { deployments, clients, flows } = await readTotals(values, 7);
    expect(deployments.get('a')).toMatchObject({
      requests: 14,
      errorCodes: new Map([['upstream-protocol', 4]]),
      refusedCodes: new Map([['request-timeout', 2]]),
    });
    expect(clients.get('reporting')?.refusals).toEqual(new Map([['request-timeout', 2]]));
    expect(flows.get(flowKey('reporting', 'a'))).toMatchObject({ requests: 14, refused: 2 });
  });
});

test('a sample takes from the one before what did not change, so that kept samples take little memory', async () => {
  const { metrics, values } = countedMetrics();
  const served = (deployment: string, client: string): void => {
    const request = { deployment, operation: 'read', client, status: '200', code: '' };
    metrics.requests.inc(request);
    metrics.deployment(deployment).operation('read').duration.observe(0.003);
  };
  served('a', 'reporting');
  served('b', 'archive');
  const first = await readTotals(values, 1);
  served('b', 'archive');
  const second = await readTotals(values, 2);
  const shared = sharedWith(first, second);
  expect(shared).toEqual(second);
  const same = (of: 'deployments' | 'clients' | 'flows', key: string): boolean =>
    shared[of].get(key) === first[of].get(key);
  expect([
    same('deployments', 'a'),
    same('clients', 'reporting'),
    same('flows', flowKey('reporting', 'a')),
  ]).toEqual([true, true, true]);
  expect([
    same('deployments', 'b'),
    same('clients', 'archive'),
    same('flows', flowKey('archive', 'b')),
  ]).toEqual([false, false, false]);
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
  const totals = (at: number): Totals => ({
    at,
    deployments: new Map(),
    clients: new Map(),
    flows: new Map(),
  });

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
