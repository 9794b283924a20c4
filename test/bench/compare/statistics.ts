/** A ratio is noise when its margin is more than this part of it. */
export const NOISY_MARGIN = 0.1;

/** Distribution of a figure over several rounds. */
export interface Spread {
  readonly median: number;
  /** The lower and the upper quartile. */
  readonly q1: number;
  readonly q3: number;
  /** Another run of as many rounds has its median within this distance, about 19 times of 20. */
  readonly margin: number;
  readonly min: number;
  readonly max: number;
  readonly rounds: number;
}

/**
 * Whether a ratio can be relied on. noisy: its margin is too wide (`NOISY_MARGIN`), or there are too few rounds;
 * same: it differs from 1 by no more than its margin; clear: neither.
 */
export type Verdict = 'clear' | 'same' | 'noisy';

/** With fewer rounds the quartiles say nothing. */
const FEWEST_ROUNDS = 3;
/** McGill, Tukey and Larsen, "Variations of Box Plots" (1978): the notch of a median, 95 %. */
const NOTCH = 1.57;

/** @throws RangeError when there are no values */
export function spreadOf(values: readonly number[]): Spread {
  if (values.length === 0) throw new RangeError('There are no values.');
  const sorted = values.toSorted((one, other) => one - other);
  const [q1, q3] = [quantile(sorted, 0.25), quantile(sorted, 0.75)];
  return {
    median: quantile(sorted, 0.5),
    q1,
    q3,
    margin: (NOTCH * (q3 - q1)) / Math.sqrt(values.length),
    min: quantile(sorted, 0),
    max: quantile(sorted, 1),
    rounds: values.length,
  };
}

/** The value below which this share of the sorted values lies, interpolated between neighbours. */
export function quantile(sorted: readonly number[], share: number): number {
  const place = (sorted.length - 1) * share;
  const [below, above] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  if (below === undefined || above === undefined) throw new RangeError('There are no values.');
  return below + (above - below) * (place - Math.floor(place));
}

/** The ratio of each round; a round that lacks one of the two has none. */
export function ratios(own: ReadonlyMap<number, number>, reference: ReadonlyMap<number, number>): number[] {
  return [...own].flatMap(([round, value]) => {
    const base = reference.get(round);
    return base === undefined || base === 0 ? [] : [value / base];
  });
}

export function verdictOn({ median, margin, rounds }: Spread): Verdict {
  if (rounds < FEWEST_ROUNDS || margin > NOISY_MARGIN * median) return 'noisy';
  return Math.abs(median - 1) <= margin ? 'same' : 'clear';
}

/** Numbers from 0 to 1, the same ones for the same seed (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** In random order (Fisher and Yates). */
export function shuffled<T>(values: readonly T[], random: () => number): T[] {
  const result = [...values];
  for (let last = result.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [result[last], result[other]] = [result[other] as T, result[last] as T];
  }
  return result;
}
