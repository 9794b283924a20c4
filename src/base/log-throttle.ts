import { putBounded } from './bounded-map.ts';
import type { Clock } from './clock.ts';

/** Time between two log lines about the same thing, in milliseconds. */
const QUIET_MS = 10_000;

interface Logged {
  readonly at: number;
  suppressed: number;
}

/** Lets one log line about the same thing through in 10 s: an upstream that is down must not fill the log. */
export class LogThrottle {
  readonly #clock: Clock;
  readonly #maxKeys: number;
  readonly #logged = new Map<string, Logged>();

  /** `maxKeys`: things that are remembered; above it, the one that was logged longest ago is forgotten. */
  constructor(clock: Clock, maxKeys: number) {
    this.#clock = clock;
    this.#maxKeys = maxKeys;
  }

  /** Returns how many lines were suppressed since the last one about this thing; undefined: this one is suppressed, too. */
  admit(key: string): number | undefined {
    const now = this.#clock.now();
    const last = this.#logged.get(key);
    if (last !== undefined && now - last.at < QUIET_MS) {
      last.suppressed += 1;
      return undefined;
    }
    putBounded(this.#logged, key, { at: now, suppressed: 0 }, this.#maxKeys);
    return last?.suppressed ?? 0;
  }
}
