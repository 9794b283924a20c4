import type { Cancellation } from './cancellation.ts';
import { monotonicClock, timerDelay } from './clock.ts';

/** The next step of a follower: `check` the leader's result, or `proceed` without it, because the leader failed. */
type Landing = 'check' | 'proceed';

/**
 * The leader's handle; the leader must always call `land`, or pass it on. After the end of the flight it does nothing.
 */
export interface Flight<T = Landing> {
  /** Ends the flight; the followers get this result. */
  land(result: T | 'late'): void;
  /** The first follower gets this result and leads from now on, while the others wait on. False: there is none. */
  passOn(result: T): boolean;
}

/** Lets one caller, the leader, do something while the others, the followers, wait. */
export class SingleFlight<T = Landing> {
  #followers: Set<(result: T | 'late') => void> | undefined;
  #begun = 0;
  /** True while a leader is under way. Only the flights change it. */
  busy = false;

  /**
   * Begins a flight.
   * @throws TypeError if a flight is in progress
   */
  lead(): Flight<T> {
    if (this.busy) throw new TypeError('a flight is under way');
    const followers = new Set<(result: T | 'late') => void>();
    this.#followers = followers;
    this.busy = true;
    this.#begun = monotonicClock.now();
    return {
      land: (result) => {
        if (this.#followers !== followers) return;
        this.#followers = undefined;
        this.busy = false;
        for (const follower of [...followers]) follower(result);
      },
      passOn: (result) => {
        const [first] = followers;
        if (this.#followers !== followers || first === undefined) return false;
        first(result);
        return true;
      },
    };
  }

  /** Milliseconds since the current flight, or the last one, began. */
  get age(): number {
    return monotonicClock.now() - this.#begun;
  }

  /**
   * Waits for the result of the current flight, at most `patienceMs` milliseconds. Resolves to `late` after that, or at
   * once if there is no flight or the follower's request is cancelled.
   */
  follow(cancellation: Cancellation, patienceMs: number): Promise<T | 'late'> {
    const followers = this.#followers;
    if (followers === undefined) return Promise.resolve('late');
    return new Promise((resolve) => {
      const follower = (result: T | 'late'): void => {
        clearTimeout(timer);
        followers.delete(follower);
        cancellation.remove(wait);
        resolve(result);
      };
      const wait = { cancel: (): void => follower('late') };
      const timer = setTimeout(() => follower('late'), timerDelay(patienceMs));
      followers.add(follower);
      cancellation.add(wait);
    });
  }
}
