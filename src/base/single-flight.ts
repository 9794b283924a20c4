import type { Cancellation } from './cancellation.ts';

/**
 * What a follower does next: `check` what the leader found out, or `proceed` by itself, since the leader cannot
 * find out or takes too long.
 */
export type Landing = 'check' | 'proceed';

/** The leader's part; the leader calls `land` in every case. */
export interface Flight {
  /** Ends the flight and lets the followers go on; only the first call counts. */
  land(landing: Landing): void;
}

/** Lets one caller, the leader, find something out while the others, the followers, wait. */
export class SingleFlight {
  #followers: Set<(landing: Landing) => void> | undefined;
  #patienceMs = 0;

  get busy(): boolean {
    return this.#followers !== undefined;
  }

  /**
   * Begins a flight, for which each follower waits at most `patienceMs`, in milliseconds.
   * @throws TypeError when one is under way
   */
  lead(patienceMs = Number.POSITIVE_INFINITY): Flight {
    if (this.busy) throw new TypeError('a flight is under way');
    const followers = new Set<(landing: Landing) => void>();
    this.#followers = followers;
    this.#patienceMs = patienceMs;
    return {
      land: (landing) => {
        if (this.#followers !== followers) return;
        this.#followers = undefined;
        for (const follower of [...followers]) follower(landing);
      },
    };
  }

  /** Waits for the end of the flight under way; a follower whose request is given up hears `check` at once. */
  follow(cancellation: Cancellation): Promise<Landing> {
    const followers = this.#followers;
    if (followers === undefined) return Promise.resolve('check');
    return new Promise((resolve) => {
      const follower = (landing: Landing): void => {
        clearTimeout(timer);
        followers.delete(follower);
        cancellation.onCancel(undefined);
        resolve(landing);
      };
      const timer = Number.isFinite(this.#patienceMs)
        ? setTimeout(() => follower('proceed'), this.#patienceMs)
        : undefined;
      followers.add(follower);
      cancellation.onCancel(() => follower('check'));
    });
  }
}
