import { callEach } from '../base/report-error.ts';
import type { Waiter } from './audit.ts';

/** Turns of the event loop that a batch stays open at most. */
const MOST_TURNS = 8;

/** Ends a batch with the current turn of the event loop, or with a later one while each turn brings more. */
export class BatchTimer {
  readonly #count: () => number;
  readonly #onEnd: () => void;
  #running = false;

  /** `count`: how many the batch has by now. */
  constructor(count: () => number, onEnd: () => void) {
    this.#count = count;
    this.#onEnd = onEnd;
  }

  /** Does nothing while it is running. */
  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#wait(this.#count(), 1);
  }

  #wait(before: number, turn: number): void {
    setImmediate(() => {
      const now = this.#count();
      if (now > before && turn < MOST_TURNS) {
        this.#wait(now, turn + 1);
        return;
      }
      this.#running = false;
      this.#onEnd();
    });
  }
}

/** Releases responses that wait for no file in batches: released one by one, they cost more CPU time. */
export class ReleaseQueue {
  #waiting: Waiter[] = [];
  readonly #timer = new BatchTimer(
    () => this.#waiting.length,
    () => this.#release(),
  );

  add(waiter: Waiter): void {
    this.#waiting.push(waiter);
    this.#timer.start();
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    callEach(waiting, tellRecorded);
  }
}

/** Releases a waiter: its record is written. */
export function tellRecorded(waiter: Waiter): void {
  waiter.recorded();
}
