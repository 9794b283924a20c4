import type { Cancellation } from './cancellation.ts';
import { monotonicClock } from './clock.ts';

/** The next step of a follower: `check` the leader's result, or `proceed` without it, because the leader failed. */
export type Landing = 'check' | 'proceed';

/** The leader's handle; the leader must always call `land`. */
export interface Flight {
  /** Ends the flight and releases the followers; only the first call counts. */
  land(landing: Landing): void;
}

/** Lets one caller, the leader, do something while the others, the followers, wait. */
export class SingleFlight {
  #followers: Set<(landing: Landing | 'late') => void> | undefined;
  #patienceMs = 0;
  #begun = 0;

  get busy(): boolean {
    return this.#followers !== undefined;
  }

  /**
   * Begins a flight. Each follower waits at most `patienceMs` milliseconds.
   * @throws TypeError if a flight is in progress
   */
  lead(patienceMs = Number.POSITIVE_INFINITY): Flight {
    if (this.busy) throw new TypeError('a flight is under way');
    const followers = new Set<(landing: Landing | 'late') => void>();
    this.#followers = followers;
    this.#patienceMs = patienceMs;
    this.#begun = monotonicClock.now();
    return {
      land: (landing) => {
        if (this.#followers !== followers) return;
        this.#followers = undefined;
        for (const follower of [...followers]) follower(landing);
      },
    };
  }

  /** Milliseconds since the current flight, or the last one, began. */
  get age(): number {
    return monotonicClock.now() - this.#begun;
  }

  /**
   * Waits for the end of the current flight, at most `patienceMs` milliseconds and what the leader allows. Resolves
   * to `late` after that, and to `check` at once if the follower's request is cancelled.
   */
  follow(cancellation: Cancellation, patienceMs = Number.POSITIVE_INFINITY): Promise<Landing | 'late'> {
    const followers = this.#followers;
    if (followers === undefined) return Promise.resolve('check');
    return new Promise((resolve) => {
      const follower = (landing: Landing | 'late'): void => {
        clearTimeout(timer);
        followers.delete(follower);
        cancellation.remove(wait);
        resolve(landing);
      };
      const ms = Math.min(this.#patienceMs, patienceMs);
      const timer = Number.isFinite(ms) ? setTimeout(() => follower('late'), ms) : undefined;
      const wait = { cancel: (): void => follower('check') };
      followers.add(follower);
      cancellation.add(wait);
    });
  }
}
