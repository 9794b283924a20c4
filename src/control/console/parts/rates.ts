import { useRef } from 'preact/hooks';

/** Counts of one moment, in Unix milliseconds. */
interface Sample {
  readonly at: number;
  readonly counts: ReadonlyMap<string, number>;
}

/** Seconds that a rate is the average of. */
const SECONDS = 5;

/**
 * Returns the rate of a count per second, from the counts that a component got before; undefined: it got too few. A
 * process that begins anew counts from zero.
 */
export function useRates(
  at: number,
  counts: ReadonlyMap<string, number>,
): (name: string) => number | undefined {
  const samples = useRef<Sample[]>([]);
  const list = samples.current;
  if ((list.at(-1)?.at ?? 0) < at) list.push({ at, counts });
  while (list.length > 2 && (list[1]?.at ?? 0) <= at - SECONDS * 1000) list.shift();
  const first = list[0];
  return (name) => {
    if (first === undefined || first.at >= at) return undefined;
    const rise = (counts.get(name) ?? 0) - (first.counts.get(name) ?? 0);
    return Math.max(0, rise) / ((at - first.at) / 1000);
  };
}
