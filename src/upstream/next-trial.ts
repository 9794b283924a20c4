import type { Clock } from '../base/clock.ts';
import type { CredentialVersion } from './credential-version.ts';
import type { Rotation } from './rotation.ts';

/** In this time, one process at most tries a next version, in milliseconds. */
const TURN_MS = 60_000;
/** Between two attempts with a next version that the upstream does not accept yet, of all processes, in milliseconds. */
export const WAITING_MS = 6 * 60 * 60_000;

/** While every version is refused: notes of other processes say nothing for so long after one, in milliseconds. */
const MISLED_MS = 60_000;

/** Lets one process try the next version of a credential for all: a wrong one costs all of them one attempt. */
export class NextTrial {
  readonly #rotation: Rotation<CredentialVersion>;
  readonly #clock: Clock;
  /** The version that this process may try. */
  #claimed: CredentialVersion | undefined;
  #isClaiming = false;
  /** When a version that waits is to be tried again. */
  #retryAt = 0;
  /** When notes of other processes count again. */
  #nextNote = 0;

  constructor(rotation: Rotation<CredentialVersion>, clock: Clock) {
    this.#rotation = rotation;
    this.#clock = clock;
  }

  isClaimed(next: CredentialVersion): boolean {
    return next === this.#claimed;
  }

  /** True if other processes may know more of this credential than this one: `catchUp`. */
  get mayLearn(): boolean {
    return this.#rotation.waiting !== undefined || this.#isRefused;
  }

  /**
   * Takes over what other processes have seen. When every version is refused, one of them is unknown, that in use
   * first, if the credential was accepted since. A next version that waits is tried once more if it was, or is due.
   */
  async catchUp(): Promise<void> {
    const now = this.#clock.now();
    const { waiting, versions } = this.#rotation;
    if (now >= this.#nextNote) {
      for (const version of this.#isRefused ? versions : []) {
        if (!(await version.resetIfAcceptedSince())) continue;
        this.#nextNote = now + MISLED_MS;
        return;
      }
      if (waiting !== undefined && (await waiting.isAcceptedSince())) {
        // Gateways number versions by themselves, so the note may be of another one.
        this.#nextNote = now + WAITING_MS;
        this.retry(waiting);
        return;
      }
    }
    if (waiting !== undefined && now >= this.#retryAt) await this.claim(waiting);
  }

  get #isRefused(): boolean {
    return this.#rotation.versions.every(({ health }) => health.refused);
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
