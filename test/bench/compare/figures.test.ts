import { describe, expect, test } from '@jest/globals';
import { compare, countNoise } from './figures.ts';
import type { Cell, CpuSlice, Measurements, Plan } from './measure.ts';
import { plot } from './plot.ts';
import { report } from './report.ts';

const CELL: Cell = { document: '2KB', connections: 32 };
const PLAN: Plan = {
  cells: [CELL],
  focus: { contenders: [], cells: [] },
  rounds: { fewest: 3, most: 3 },
  latencyRounds: 3,
  crowd: 1000,
  ms: { warmUp: 1, slice: 1, latency: 1, crowd: 1, total: 1 },
};

function slices(contender: string, costs: readonly number[]): CpuSlice[] {
  return costs.map((cpuUs, index) => ({
    ...CELL,
    contender,
    round: index + 1,
    requests: 9,
    repeated: 0,
    cpuUs,
    busy: 1,
  }));
}

const MEASUREMENTS: Measurements = {
  warmUps: [],
  cpu: [
    ...slices('base', [100, 200, 100]),
    ...slices('half', [51, 100, 50]),
    ...slices('noise', [100, 400, 300]),
    ...slices('half', [1]).map((slice) => ({ ...slice, connections: 1 })),
  ],
  others: [0.1, 0.2, 1.5],
  latencyRate: 700,
  latency: ['base', 'half', 'noise'].flatMap((contender) =>
    [1, 2, 3].map((round) => ({
      contender,
      round,
      requests: 9,
      disturbed: 0,
      p50: 1,
      p99: contender === 'half' ? 2 : 1,
    })),
  ),
  allocations: [1000, 3000, 2000].map((heap, index) => ({
    ...{ contender: 'half', round: index + 1, requests: 9 },
    ...{ heap, external: 500 },
  })),
  memory: [{ contender: 'half', steady: 2 ** 20, crowd: 2 ** 21, peak: 2 ** 22 }],
};

const comparison = compare(MEASUREMENTS, PLAN.cells, 'base');
const entrant = (name: string, version: string | undefined = '1') => ({
  contender: {
    name,
    upstream: 'digest' as const,
    version: async () => version,
    prepare: async () => [],
  },
  version,
});
const ENTRANTS = [
  entrant('half'),
  entrant('base'),
  entrant('noise'),
  { ...entrant('absent'), version: undefined },
];

describe('a comparison', () => {
  test('takes the ratio of each round, then their median', () => {
    const half = comparison.cpu[0]?.figures.get('half');
    expect(half?.value.median).toBe(51);
    expect(half?.ratio).toMatchObject({ median: 0.5, min: 0.5, max: 0.51, rounds: 3 });
    expect(half?.verdict).toBe('clear');
    expect(comparison.p99.get('half')?.ratio.median).toBe(2);
  });

  test('says which figures are noise; the reference is none', () => {
    expect(comparison.cpu[0]?.figures.get('noise')?.verdict).toBe('noisy');
    expect(comparison.cpu[0]?.figures.get('base')?.verdict).toBe('clear');
    expect(countNoise(comparison)).toEqual({ noisy: 1, all: 6 });
  });

  test('needs measurements of the reference', () => {
    expect(() => compare(MEASUREMENTS, PLAN.cells, 'other')).toThrow('There is no measurement of other.');
  });
});

test('the table has a row for each contender, with marks, and says what is not installed', () => {
  const lines = report(
    PLAN,
    ENTRANTS,
    MEASUREMENTS,
    comparison,
    compare(MEASUREMENTS, PLAN.cells, 'half'),
  ).split('\n');
  expect(lines.slice(0, 6)).toEqual([
    '       | us  | x half    | CPU x 2KB | ms at 700/s        | kB            | MiB',
    '       |  32 |       32  |       32  |  p50  p99   p99 x  | heap external | 32 1000 peak',
    'half   |  51 |  1.00±0%  |  0.50±1%  | 1.00 2.00 2.00±0%  |  2.0      0.5 |  1    2    4',
    'base   | 100 |  2.00±1%  |  1.00±0%  | 1.00 1.00 1.00±0%  |               |',
    'noise  | 300 | 4.00±46%? | 2.00±45%? | 1.00 1.00 1.00±0%= |               |',
    'absent | not installed: sh test/bench/install-peers.sh',
  ]);
  expect(lines).toContain('1 of 6 ratios are noise. Other programs took 0.2 cores, in one round up to 1.5.');
});

describe('with every request of a contender left out', () => {
  const without = (missing: string): Measurements => ({
    ...MEASUREMENTS,
    latency: MEASUREMENTS.latency.map((slice) =>
      slice.contender === missing ? { ...slice, requests: 0, p50: undefined, p99: undefined } : slice,
    ),
  });
  const rowsWithout = (missing: string): string[] => {
    const measured = without(missing);
    const compared = compare(measured, PLAN.cells, 'base');
    return report(PLAN, ENTRANTS, measured, compared, undefined).split('\n').slice(2, 5);
  };

  test('the table has a question mark in place of its latency', () => {
    expect(rowsWithout('half')).toEqual([
      'half   |  51 |  0.50±1%  |    ?    ?        ? |  2.0      0.5 |  1    2    4',
      'base   | 100 |  1.00±0%  | 1.00 1.00 1.00±0%  |               |',
      'noise  | 300 | 2.00±45%? | 1.00 1.00 1.00±0%= |               |',
    ]);
  });

  test('nothing is compared with a reference that has none', () => {
    for (const row of rowsWithout('base')) expect(row).toMatch(/\| +\? +\? +\? \|/);
  });

  test('the plot has no bar for it', () => {
    const svg = plot(compare(without('half'), PLAN.cells, 'base'), ['half', 'base', 'noise']);
    expect(svg.match(/<rect/g)).toHaveLength(1 + 2 * 3 - 1);
  });
});

test('the plot has a bar for each contender and load', () => {
  const svg = plot(comparison, ['half', 'base', 'noise']);
  // One more rectangle is the background.
  expect(svg.match(/<rect/g)).toHaveLength(1 + 2 * 3);
  expect(svg).toContain('CPU, 2KB, 32 connections');
});
