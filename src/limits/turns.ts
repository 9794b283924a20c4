/** How long after its Retry-After a client is waited for, in milliseconds. */
const GRACE_MS = 500;

/**
 * Clients that a limit has refused, in the order in which that happened. Each comes before those that were refused later,
 * or not at all: otherwise a client that asks without pause would take every place that becomes free.
 */
export class Turns {
  /** By client: until when its place is kept. */
  readonly #waiting = new Map<string, number>();

  /** Keeps a place for a client that was told to come again after so many seconds. One that had a place keeps it. */
  wait(client: string, now: number, seconds: number): void {
    this.#waiting.set(client, now + seconds * 1000 + GRACE_MS);
  }

  /** True if so many other clients come before this one that they take all the room. */
  isBehind(client: string, now: number, room: number): boolean {
    let ahead = 0;
    for (const [other, until] of this.#waiting) {
      if (other === client) return false;
      if (until <= now) this.#waiting.delete(other);
      else ahead += 1;
      if (ahead > room - 1) return true;
    }
    return false;
  }

  /** The client has got a place. */
  end(client: string): void {
    if (this.#waiting.size > 0) this.#waiting.delete(client);
  }
}
