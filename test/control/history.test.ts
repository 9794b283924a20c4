import { describe, expect, test } from '@jest/globals';
import { Histories } from '../../src/control/history.ts';
import { type DeploymentTotals, noTotals, type Totals } from '../../src/control/totals.ts';

const EVERY_MS = 5_000;

/** The totals of deployments at one moment. */
function totalsAt(at: number, deployments: Readonly<Record<string, Partial<DeploymentTotals>>>): Totals {
  const entries = Object.entries(deployments).map(
    ([name, totals]) => [name, { ...noTotals(), ...totals }] as const,
  );
  return { at, deployments: new Map(entries), clients: new Map() };
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
    const { times, deployments } = filled(10).sparklines();
    expect(times).toEqual([20_000, 40_000, 50_000]);
    expect(deployments['a']).toEqual({ requests: [3, 3, 3], errors: [1, 1, 1] });
    expect(filled(1000).sparklines().times).toHaveLength(45);
    expect(filled(1001).sparklines().times.at(-2)).toBe(filled(1000).sparklines().times.at(-1));
  });
});
