import type { Clock } from './clock.ts';
import { putBounded } from './maps.ts';

/** Time between two log lines about the same thing, in milliseconds. */
const QUIET_MS = 10_000;

interface Admitted {
  readonly at: number;
  suppressed: number;
}

/**
 * Lets one event about the same thing through in 10 s, such as a log line: an upstream that is down must not fill the
 * log.
 */
export class Throttle {
  readonly #clock: Clock;
  readonly #maxKeys: number;
  readonly #quietMs: number;
  readonly #admitted = new Map<string, Admitted>();

  /**
   * `maxKeys`: things that are remembered; above it, the one that was let through longest ago is forgotten. `quietMs`:
   * the time between two events about the same thing, in milliseconds.
   */
  constructor(clock: Clock, maxKeys: number, quietMs = QUIET_MS) {
    this.#clock = clock;
    this.#maxKeys = maxKeys;
    this.#quietMs = quietMs;
  }

  /**
   * Returns how many events were suppressed since the last one about this thing; undefined: this one is suppressed,
   * too.
   */
  admit(key: string): number | undefined {
    const last = this.#admitted.get(key);
    if (last !== undefined && this.suppresses(key)) {
      last.suppressed += 1;
      return undefined;
    }
    putBounded(this.#admitted, key, { at: this.#clock.now(), suppressed: 0 }, this.#maxKeys);
    return last?.suppressed ?? 0;
  }

  /** True if an event about this thing would be suppressed now. */
  suppresses(key: string): boolean {
    const last = this.#admitted.get(key);
    return last !== undefined && this.#clock.now() - last.at < this.#quietMs;
  }
}
