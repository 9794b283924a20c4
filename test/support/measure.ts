/**
 * CPU time of this thread since a call, in milliseconds. On a busy machine the time of a clock says little, and that of
 * the process has the work of other threads in it.
 */
export function cpuMeter(): () => number {
  const before = process.threadCpuUsage();
  return () => {
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1000;
  };
}

/** How often it is looked whether this process runs at all, in milliseconds. */
const TICK_MS = 5;

export interface Standstill {
  /** Milliseconds so far. */
  ms(): number;
  end(): void;
}

/** Counts the milliseconds in which other programs had the processor: they say nothing of the gateway. */
export function watchStandstill(): Standstill {
  let [total, last] = [0, performance.now()];
  const excess = (): number => Math.max(0, performance.now() - last - TICK_MS);
  const timer = setInterval(() => {
    total += excess();
    last = performance.now();
  }, TICK_MS);
  return { ms: () => total + excess(), end: () => clearInterval(timer) };
}
