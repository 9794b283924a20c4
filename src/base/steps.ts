import { setImmediate as nextTurn } from 'node:timers/promises';

/** A long piece of work that can be left for a moment at each `yield`. */
export type Steps<T> = Generator<void, T>;

/** How long a slice keeps other work waiting, in milliseconds. */
const SLICE_MS = 5;

/** Does the work in one go, where nobody waits. */
export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Does the work in slices, between which requests are served. Rejects with what a step throws. */
export async function runInSlices<T>(steps: Steps<T>): Promise<T> {
  // In a turn of its own: the caller may have used up one, and several such works follow each other.
  await nextTurn();
  const pause = slices();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    await pause();
  }
}

/** @returns what is awaited between the steps of a long loop: it lets requests be served when a slice is over */
export function slices(): () => Promise<void> | undefined {
  let end = performance.now() + SLICE_MS;
  return () => {
    if (performance.now() < end) return undefined;
    return nextTurn().then(() => {
      end = performance.now() + SLICE_MS;
    });
  };
}
