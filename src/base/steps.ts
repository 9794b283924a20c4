import { setImmediate as nextTurn } from 'node:timers/promises';

/** A long task that can be interrupted at each `yield`. */
export type Steps<T> = Generator<void, T>;

/** Maximum time of a slice, in milliseconds; other work waits for its end. */
const SLICE_MS = 5;

/** Runs the task without interruption. */
export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Runs the task in slices, between which requests are served. Rejects with the error of a step. */
export async function runInSlices<T>(steps: Steps<T>): Promise<T> {
  // Starts in a new turn, because the caller may have used up the current one.
  await nextTurn();
  return runBetween(steps, slices());
}

/** Runs the task, with `pause` of a loop around it after each step. Rejects with the error of a step. */
export async function runBetween<T>(steps: Steps<T>, pause: Pause): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    const turn = pause();
    // Otherwise each step would cost a microtask.
    if (turn !== undefined) await turn;
  }
}

/** Lets requests be served if its slice is over. */
export type Pause = () => Promise<void> | undefined;

/**
 * Returns a function for the steps of a long loop; awaiting its result lets requests be served after each
 * slice.
 */
export function slices(): Pause {
  let end = performance.now() + SLICE_MS;
  return () => {
    if (performance.now() < end) return undefined;
    return nextTurn().then(() => {
      end = performance.now() + SLICE_MS;
    });
  };
}
