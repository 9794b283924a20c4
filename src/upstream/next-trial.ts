import type { Clock } from '../base/clock.ts';
import type { CredentialVersion } from './credential-version.ts';
import type { Rotation } from './rotation.ts';

/** In this time, one process at most tries a next version, in milliseconds. */
const TURN_MS = 60_000;
/** Between two attempts with a next version that the upstream does not accept yet, of all processes, in milliseconds. */
export const WAITING_MS = 6 * 60 * 60_000;

/** Lets one process try the next version of a credential for all: a wrong one costs all of them one attempt. */
export class NextTrial {
  readonly #rotation: Rotation<CredentialVersion>;
  readonly #clock: Clock;
  /** The version that this process may try. */
  #claimed: CredentialVersion | undefined;
  #isClaiming = false;
  /** When a version that waits is to be tried again. */
  #retryAt = 0;

  constructor(rotation: Rotation<CredentialVersion>, clock: Clock) {
    this.#rotation = rotation;
    this.#clock = clock;
  }

  isClaimed(next: CredentialVersion): boolean {
    return next === this.#claimed;
  }

  get isDue(): boolean {
    return this.#clock.now() >= this.#retryAt;
  }

  /** Finds out whether this process is the one to try the version; if it is not, the version waits. Never rejects. */
  async claim(next: CredentialVersion): Promise<void> {
    if (this.#isClaiming) return;
    this.#isClaiming = true;
    const isOurs = await next.leadTrial(TURN_MS);
    this.#isClaiming = false;
    if (isOurs) {
      this.retry(next);
      return;
    }
    this.#retryAt = this.#clock.now() + TURN_MS;
    this.#rotation.postpone(next);
  }

  /** The next request tries this version. */
  retry(next: CredentialVersion): void {
    this.#claimed = next;
    if (this.#rotation.retry(next)) next.health.reset();
  }

  /** The upstream did not accept it: no process tries it for a while. */
  wait(next: CredentialVersion): void {
    this.#claimed = undefined;
    this.#retryAt = this.#clock.now() + WAITING_MS;
    void next.leadTrial(WAITING_MS);
  }
}
