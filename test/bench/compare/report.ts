import type { Contender } from './contenders.ts';
import { type Comparison, countNoise, type Figure, type Figures } from './figures.ts';
import { MAIN_CELL, type Measurements, type Plan } from './measure.ts';
import { NOISY_SPREAD, spreadOf } from './statistics.ts';

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
const SEPARATOR = ' | ';
const MIB = 2 ** 20;

/** The table of a run, and what its signs mean. */
export function report(
  plan: Plan,
  entrants: readonly Entrant[],
  measurements: Measurements,
  comparison: Comparison,
): string {
  const groups = groupsOf(plan, measurements, comparison).map((group) => groupText(group, entrants));
  const names = ['', '', ...entrants.map(titleOf)];
  const width = Math.max(...names.map((name) => name.length));
  const lines = names.map((name, line) => {
    const missing = line > 1 && entrants[line - 2]?.version === undefined;
    const parts = missing
      ? ['not installed: sh test/bench/install-peers.sh']
      : groups.map((texts) => texts[line] ?? '');
    return [name.padEnd(width), ...parts].join(SEPARATOR).trimEnd();
  });
  return [...lines, '', ...legend(plan, measurements, comparison)].join('\n');
}

/** The lines of a group, all of one length: its heading, those of its columns, and one for each contender. */
function groupText({ heading, columns }: Group, entrants: readonly Entrant[]): string[] {
  const texts = columns.map((column) => {
    const cells = [column.heading, ...entrants.map(({ contender }) => column.cell(contender.name))];
    const width = Math.max(...cells.map((cell) => cell.length));
    return cells.map((cell) => cell.padStart(width));
  });
  const lines = [...(texts[0] ?? []).keys()].map((line) => texts.map((cells) => cells[line]).join(' '));
  const width = Math.max(heading.length, lines[0]?.length ?? 0);
  return [heading, ...lines].map((line) => line.padEnd(width));
}

function titleOf({ contender: { name, upstream } }: Entrant): string {
  return upstream === 'digest' ? name : `${name} *`;
}

function groupsOf(
  plan: Plan,
  { latencyRate, memory }: Measurements,
  { reference, cpu, p50, p99 }: Comparison,
): Group[] {
  const main = cpu.find(
    ({ document, connections }) => document === MAIN_CELL.document && connections === MAIN_CELL.connections,
  );
  const documents = Map.groupBy(cpu, ({ document }) => document);
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
    ...[...documents].map(([document, cells]) => ({
      heading: `CPU x ${reference}, ${document}`,
      columns: cells.map(({ connections, figures }) => ratioColumn(`${connections}`, figures)),
    })),
    {
      heading: `ms at ${latencyRate}/s`,
      columns: [latencyColumn('p50', p50), latencyColumn('p99', p99), ratioColumn('p99 x', p99)],
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

function ratioColumn(heading: string, figures: Figures): Column {
  return {
    heading: `${heading} `,
    cell: (name) => {
      const figure = figures.get(name);
      return figure === undefined ? '' : ratioText(figure);
    },
  };
}

function latencyColumn(heading: string, figures: Figures): Column {
  return { heading, cell: (name) => figures.get(name)?.value.median.toFixed(2) ?? '' };
}

function ratioText({ ratio: { median, q1, q3 }, verdict }: Figure): string {
  const percent = ((q3 - q1) / 2 / median) * 100;
  return `${median.toFixed(2)}±${percent.toFixed(0)}%${MARKS[verdict]}`;
}

function legend(plan: Plan, { cpu, others }: Measurements, comparison: Comparison): string[] {
  const rounds = new Set(cpu.map(({ round }) => round)).size;
  const { noisy, all } = countNoise(comparison);
  return [
    `us: CPU time of a request, ${MAIN_CELL.document}, ${MAIN_CELL.connections} connections. CPU x: the same as a ratio to ${comparison.reference}, by connections.`,
    `Medians of ${rounds} rounds (latency: ${plan.latencyRounds}); ± half of what the middle half of the rounds spans.`,
    `?  noise: the middle half spans more than ${NOISY_SPREAD * 100} %, or there are fewer than 3 rounds.`,
    `=  no difference from ${comparison.reference}: it is less than the middle half spans.`,
    '*  without Digest.',
    'MiB: resident memory by connections, and the most so far.',
    `${noisy} of ${all} ratios are noise. Other programs took ${spreadOf(others).median.toFixed(1)} cores, in one round up to ${Math.max(...others).toFixed(1)}.`,
  ];
}
