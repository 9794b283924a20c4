/** How long after its Retry-After a client is waited for, in milliseconds. */
const GRACE_MS = 500;
/** Number of places after which a change of the share that is claimed is mostly known. */
const PLACES_REMEMBERED = 20;

/**
 * Clients that a limit has refused, in the order in which that happened. Each comes before those that were refused later,
 * or not at all: otherwise a client that asks without pause would take every place that becomes free.
 */
export class Turns {
  /** By client: until when its place is kept. */
  readonly #waiting = new Map<string, number>();
  /**
   * The share of the places kept lately whose clients have claimed them. Behind a load balancer, most come again at
   * another process, and would block this one if each of their places counted in full.
   */
  #claimed = 1;

  /** Keeps a place for a client that was told to come again after so many seconds. One that had a place keeps it. */
  wait(client: string, now: number, seconds: number): void {
    this.#waiting.set(client, now + seconds * 1000 + GRACE_MS);
  }

  /** True if so many other clients are expected before this one that they take all the room. */
  isBehind(client: string, now: number, room: number): boolean {
    let ahead = 0;
    for (const [other, until] of this.#waiting) {
      if (other === client) return false;
      if (until <= now) {
        this.#waiting.delete(other);
        this.#count(0);
      } else {
        ahead += this.#claimed;
      }
      if (ahead > room - 1) return true;
    }
    return false;
  }

  /** True if most places were kept in vain lately. */
  get areMostlyInVain(): boolean {
    return this.#claimed < 0.5;
  }

  /** The client has got a place. */
  end(client: string): void {
    if (this.#waiting.size > 0 && this.#waiting.delete(client)) this.#count(1);
  }

  /** `claimed`: 1 for a place that its client has got, 0 for one that was kept in vain. */
  #count(claimed: number): void {
    this.#claimed += (claimed - this.#claimed) / PLACES_REMEMBERED;
  }
}
