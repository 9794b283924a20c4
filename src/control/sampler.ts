import { Histories } from './history.ts';
import type { Totals } from './totals.ts';

/** Samples that are kept for rates of the last minute. */
const SAMPLES = 13;

/** Samples the metrics, for rates of the last minute and for the charts. Its memory is bounded. */
export class Sampler {
  readonly histories = new Histories();
  readonly #read: () => Promise<Totals>;
  readonly #onError: (error: unknown) => void;
  readonly #samples: Totals[] = [];
  readonly #timer: NodeJS.Timeout;

  /** @param everyMs sampling interval in milliseconds */
  constructor(read: () => Promise<Totals>, everyMs: number, onError: (error: unknown) => void) {
    this.#read = read;
    this.#onError = onError;
    this.#timer = setInterval(() => void this.#sample(), everyMs).unref();
    void this.#sample();
  }

  /** Reads the current totals. */
  now(): Promise<Totals> {
    return this.#read();
  }

  /** Returns the latest sample that is at least `ms` milliseconds older than `now`, or the oldest one. */
  before(now: Totals, ms: number): Totals {
    return this.#samples.findLast(({ at }) => at <= now.at - ms) ?? this.#samples[0] ?? now;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #sample(): Promise<void> {
    try {
      const sample = await this.#read();
      this.#samples.push(sample);
      if (this.#samples.length > SAMPLES) this.#samples.shift();
      this.histories.add(sample);
    } catch (error) {
      this.#onError(error);
    }
  }
}
