import { getBorderCharacters, type TableUserConfig, table } from 'table';
import type { Contender } from './contenders.ts';
import { type CellFigures, type Comparison, countNoise, type Figure, type Figures } from './figures.ts';
import { type AllocationSlice, MAIN_CELL, type Measurements, type Plan } from './measure.ts';
import { NOISY_MARGIN, spreadOf } from './statistics.ts';

/** A contender with its version; undefined: it is not installed. */
export interface Entrant {
  readonly contender: Contender;
  readonly version: string | undefined;
}

/** Columns under one heading. */
interface Group {
  readonly heading: string;
  readonly columns: readonly Column[];
}

interface Column {
  readonly heading: string;
  cell(contender: string): string;
}

const MARKS = { clear: ' ', same: '=', noisy: '?' } as const;
const MIB = 2 ** 20;

/**
 * The table of a run, and what its signs mean.
 * @param second a comparison of the main kind of load with another reference
 */
export function report(
  plan: Plan,
  entrants: readonly Entrant[],
  measurements: Measurements,
  comparison: Comparison,
  second: Comparison | undefined,
): string {
  const groups = groupsOf(plan, measurements, comparison, second);
  const columns = groups.flatMap((group) => group.columns);
  const rows = entrants.map((entrant) => [
    titleOf(entrant),
    ...(entrant.version === undefined
      ? spanned('not installed: sh test/bench/install-peers.sh', columns.length)
      : columns.map(({ cell }) => cell(entrant.contender.name))),
  ]);
  const headings = [
    ['', ...groups.flatMap((group) => spanned(group.heading, group.columns.length))],
    ['', ...columns.map(({ heading }) => heading)],
  ];
  const text = table([...headings, ...rows], layoutOf(groups, entrants, headings.length));
  const lines = text.split('\n').map((line) => line.trimEnd());
  return [...lines, ...legend(plan, measurements, comparison), versionsOf(entrants)].join('\n');
}

/** Versions of the programs that do not run on this Node.js alone. */
function versionsOf(entrants: readonly Entrant[]): string {
  const named = entrants.flatMap(({ contender, version }) =>
    version === undefined || version === process.version ? [] : [`${contender.name} ${version}`],
  );
  return `Versions: ${[`Node.js ${process.version}`, ...named].join(', ')}.`;
}

/** A text that takes this many cells. */
function spanned(text: string, cells: number): string[] {
  return [text, ...Array<string>(cells - 1).fill('')];
}

/** Numbers to the right, a line before each group, its heading over all of its columns. */
function layoutOf(groups: readonly Group[], entrants: readonly Entrant[], firstRow: number): TableUserConfig {
  const widths = groups.map(({ columns }) => columns.length);
  const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);
  const starts = widths.map((_, index) => 1 + sum(widths.slice(0, index)));
  const alignment = 'left';
  const headings = starts.map(
    (col, index) => ({ row: 0, col, colSpan: widths[index] ?? 1, alignment }) as const,
  );
  const missing = entrants.flatMap(({ version }, index) =>
    version === undefined
      ? [{ row: firstRow + index, col: 1, colSpan: sum(widths), alignment } as const]
      : [],
  );
  return {
    border: { ...getBorderCharacters('void'), bodyJoin: ' |' },
    drawHorizontalLine: () => false,
    drawVerticalLine: (index) => starts.includes(index),
    columnDefault: { alignment: 'right', paddingLeft: 1, paddingRight: 0 },
    columns: { 0: { alignment, paddingLeft: 0 } },
    spanningCells: [...headings, ...missing],
  };
}

function titleOf({ contender: { name, upstream } }: Entrant): string {
  return upstream === 'digest' ? name : `${name} *`;
}

function groupsOf(
  plan: Plan,
  { latency, latencyRate, allocations, memory }: Measurements,
  { cpu, p50, p99 }: Comparison,
  second: Comparison | undefined,
): Group[] {
  const main = mainCellOf(cpu);
  const toSecond = second && mainCellOf(second.cpu);
  const documents = Map.groupBy(cpu, ({ document }) => document);
  const withLatency = new Set(latency.map(({ contender }) => contender));
  const memoryColumn = (heading: string, field: 'steady' | 'crowd' | 'peak'): Column => ({
    heading,
    cell: (name) => {
      const use = memory.find(({ contender }) => contender === name);
      return use === undefined ? '' : (use[field] / MIB).toFixed(0);
    },
  });
  return [
    {
      heading: 'us',
      columns: [
        {
          heading: `${MAIN_CELL.connections}`,
          cell: (name) => main?.figures.get(name)?.value.median.toFixed(0) ?? '',
        },
      ],
    },
    ...(second === undefined || toSecond === undefined
      ? []
      : [
          {
            heading: `x ${second.reference}`,
            columns: [ratioColumn(`${toSecond.connections}`, toSecond.figures)],
          },
        ]),
    ...[...documents].map(([document, cells]) => ({
      heading: `CPU x ${document}`,
      columns: cells.map(({ connections, figures }) => ratioColumn(`${connections}`, figures)),
    })),
    {
      heading: `ms at ${latencyRate}/s`,
      columns: [latencyColumn('p50', p50), latencyColumn('p99', p99), ratioColumn('p99 x', p99)].map(
        (column) => withUnknown(column, withLatency),
      ),
    },
    {
      heading: 'kB',
      columns: [allocationColumn('heap', allocations), allocationColumn('external', allocations)],
    },
    {
      heading: 'MiB',
      columns: [
        memoryColumn(`${MAIN_CELL.connections}`, 'steady'),
        memoryColumn(`${plan.crowd}`, 'crowd'),
        memoryColumn('peak', 'peak'),
      ],
    },
  ];
}

function mainCellOf(cells: readonly CellFigures[]): CellFigures | undefined {
  return cells.find(
    ({ document, connections }) => document === MAIN_CELL.document && connections === MAIN_CELL.connections,
  );
}

function ratioColumn(heading: string, figures: Figures): Column {
  return {
    heading: `${heading} `,
    cell: (name) => {
      const figure = figures.get(name);
      return figure === undefined ? '' : ratioText(figure);
    },
  };
}

function allocationColumn(heading: 'heap' | 'external', slices: readonly AllocationSlice[]): Column {
  return {
    heading,
    cell(name) {
      const own = slices.filter(({ contender }) => contender === name);
      return own.length === 0 ? '' : (spreadOf(own.map((slice) => slice[heading])).median / 1000).toFixed(1);
    },
  };
}

function latencyColumn(heading: string, figures: Figures): Column {
  return { heading, cell: (name) => figures.get(name)?.value.median.toFixed(2) ?? '' };
}

/** Shows that a contender was measured and has no figure: every request was left out. */
function withUnknown({ heading, cell }: Column, measured: ReadonlySet<string>): Column {
  return { heading, cell: (name) => cell(name) || (measured.has(name) ? '?' : '') };
}

function ratioText({ ratio: { median, margin }, verdict }: Figure): string {
  const percent = (margin / median) * 100;
  return `${median.toFixed(2)}±${percent.toFixed(0)}%${MARKS[verdict]}`;
}

function legend(plan: Plan, { cpu, others }: Measurements, comparison: Comparison): string[] {
  const rounds = new Set(cpu.map(({ round }) => round)).size;
  const { noisy, all } = countNoise(comparison);
  return [
    `us: CPU time of a request, ${MAIN_CELL.document}, ${MAIN_CELL.connections} connections. CPU x: the same as a ratio to ${comparison.reference}, by connections.`,
    `Medians of ${rounds} rounds (latency: ${plan.latencyRounds}); ± 95 % of runs like this one have their median within it.`,
    `?  noise: ± more than ${NOISY_MARGIN * 100} %, or there are fewer than 3 rounds. A ? alone: every request was left out, since the load program was late.`,
    `=  no difference from ${comparison.reference} beyond ±.`,
    '*  without Digest.',
    'kB: allocated for a request, in the heap of V8 and outside of it.',
    'MiB: resident memory by connections, and the most so far.',
    `${noisy} of ${all} ratios are noise. Other programs took ${spreadOf(others).median.toFixed(1)} cores, in one round up to ${Math.max(...others).toFixed(1)}.`,
  ];
}
