import type { Cell, Measurements } from './measure.ts';
import { ratios, type Spread, spreadOf, type Verdict, verdictOn } from './statistics.ts';

/** Figures of one contender from one measurement. */
export interface Figure {
  /** In the unit of the measurement. */
  readonly value: Spread;
  /** To the reference in the same round. */
  readonly ratio: Spread;
  /** On the ratio; of the reference itself always clear. */
  readonly verdict: Verdict;
}

/** Figures by contender; of one without a value, or without a round in common with the reference, there is none. */
export type Figures = ReadonlyMap<string, Figure>;

export interface CellFigures extends Cell {
  readonly figures: Figures;
}

/** The quantities that are compared with the reference. */
export interface Comparison {
  readonly reference: string;
  /** CPU time, microseconds a request. */
  readonly cpu: readonly CellFigures[];
  /** Milliseconds. */
  readonly p50: Figures;
  readonly p99: Figures;
}

interface Sample {
  readonly contender: string;
  readonly round: number;
}

/** Compares each contender with the reference, round by round. */
export function compare(
  { cpu, latency }: Measurements,
  cells: readonly Cell[],
  reference: string,
): Comparison {
  return {
    reference,
    cpu: cells.map((cell) => {
      const slices = cpu.filter(
        ({ document, connections }) => document === cell.document && connections === cell.connections,
      );
      return { ...cell, figures: figuresOf(slices, ({ cpuUs }) => cpuUs, reference) };
    }),
    p50: figuresOf(latency, ({ p50 }) => p50, reference),
    p99: figuresOf(latency, ({ p99 }) => p99, reference),
  };
}

/** How many figures there are, and how many of them are noise. The reference is compared with nothing. */
export function countNoise({ reference, cpu, p50, p99 }: Comparison): { noisy: number; all: number } {
  const figures = [...cpu.map((cell) => cell.figures), p50, p99].flatMap((byContender) =>
    [...byContender].filter(([contender]) => contender !== reference).map(([, figure]) => figure),
  );
  return { noisy: figures.filter(({ verdict }) => verdict === 'noisy').length, all: figures.length };
}

export function figuresOf<S extends Sample>(
  samples: readonly S[],
  read: (sample: S) => number | undefined,
  reference: string,
): Figures {
  const byContender = Map.groupBy(samples, ({ contender }) => contender);
  const rounds = new Map(
    [...byContender].map(([contender, own]) => [
      contender,
      new Map(own.flatMap((sample) => entryOf(sample.round, read(sample)))),
    ]),
  );
  const base = rounds.get(reference);
  if (base === undefined) throw new RangeError(`There is no measurement of ${reference}.`);
  return new Map(
    [...rounds].flatMap(([contender, own]) => {
      const ofRounds = ratios(own, base);
      if (ofRounds.length === 0) return [];
      const ratio = spreadOf(ofRounds);
      const verdict = contender === reference ? 'clear' : verdictOn(ratio);
      return [[contender, { value: spreadOf([...own.values()]), ratio, verdict }]];
    }),
  );
}

function entryOf(round: number, value: number | undefined): [round: number, value: number][] {
  return value === undefined ? [] : [[round, value]];
}
