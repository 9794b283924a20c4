import type { Clock } from '../base/clock.ts';
import { reportDefect } from '../base/expected-errors.ts';
import type { ChallengeStore } from '../challenges/store/store.ts';
import type { CredentialVersion } from './credential-version.ts';
import type { Rotation } from './rotation.ts';

/** How long it is known that the upstream accepted a credential, in milliseconds. */
const ACCEPTED_MS = 10 * 60_000;
/** Between two notes for other processes that the upstream accepts a version, in milliseconds. */
const NOTE_EVERY_MS = 3_000;
/** In this time, one process at most tries a next version, in milliseconds. */
const TURN_MS = 60_000;
/** Between two attempts with a next version that the upstream does not accept yet, of all processes, in milliseconds. */
export const WAITING_MS = 6 * 60 * 60_000;
/**
 * While every version is refused: time after a refusal in which notes of other processes do not count, in milliseconds.
 */
const MISLED_MS = 60_000;

export interface SharedEvidenceDeps {
  readonly store: ChallengeStore;
  readonly clock: Clock;
  readonly rotation: Rotation<CredentialVersion>;
  /** Of notes of any version: each gateway numbers them by itself. From `serializeKey`. */
  readonly key: string;
}

/**
 * Shares evidence of one credential among processes: that the upstream accepts it, and which of them tries the next
 * version, so that a wrong one costs all of them one attempt. No method rejects, whatever the store does.
 */
export class SharedEvidence {
  readonly #deps: SharedEvidenceDeps;
  readonly #rotation: Rotation<CredentialVersion>;
  /** When it was noted that the upstream accepts a version. */
  #notedAt = Number.NEGATIVE_INFINITY;
  /** The version that this process may try. */
  #claimed: CredentialVersion | undefined;
  #isClaiming = false;
  /** When a version that waits is to be tried again. */
  #retryAt = 0;
  /** When notes of other processes count again. */
  #nextNote = 0;

  constructor(deps: SharedEvidenceDeps) {
    this.#deps = deps;
    this.#rotation = deps.rotation;
  }

  /** The upstream accepts this version. `isNews`: others may think that it is refused. */
  noteAccepted(version: CredentialVersion, isNews: boolean): void {
    const now = this.#deps.clock.now();
    if (!isNews && now - this.#notedAt < NOTE_EVERY_MS) return;
    this.#notedAt = now;
    const { store, key } = this.#deps;
    void this.#try(() => store.noteAccepted(key, ACCEPTED_MS));
    if (this.#rotation.others.length > 0) void this.#try(() => store.noteAccepted(version.key, ACCEPTED_MS));
  }

  /** True if other processes may know more of this credential than this one: `catchUp`. */
  get mayLearn(): boolean {
    return this.#rotation.waiting !== undefined || this.#isRefused;
  }

  /**
   * Takes over what other processes have seen. When every version is refused, one of them is unknown, that in use
   * first, if the credential was accepted since. A next version that waits is a candidate again if it was, or is due.
   */
  async catchUp(): Promise<void> {
    const now = this.#deps.clock.now();
    const { waiting, versions } = this.#rotation;
    if (now >= this.#nextNote) {
      for (const version of this.#isRefused ? versions : []) {
        if (!(await this.#isAcceptedSince(this.#deps.key, version)) || !version.health.refused) continue;
        version.health.reset();
        this.#nextNote = now + MISLED_MS;
        return;
      }
      if (waiting !== undefined && (await this.#isAcceptedSince(waiting.key, waiting))) {
        // Gateways number versions by themselves, so the note may be of another one.
        this.#nextNote = now + WAITING_MS;
        this.#retry(waiting);
        return;
      }
    }
    if (waiting !== undefined && now >= this.#retryAt) await this.claim(waiting);
  }

  /** True if this process is the one to try the next version; if it is not, the version waits. */
  async claim(next: CredentialVersion): Promise<boolean> {
    if (next === this.#claimed) return true;
    if (this.#isClaiming) return false;
    this.#isClaiming = true;
    const isOurs = await this.#lead(next, TURN_MS);
    this.#isClaiming = false;
    if (isOurs) {
      this.#retry(next);
      return true;
    }
    this.#retryAt = this.#deps.clock.now() + TURN_MS;
    this.#rotation.postpone(next);
    return false;
  }

  /** The upstream did not accept it: no process tries it for a while. */
  wait(next: CredentialVersion): void {
    this.#claimed = undefined;
    this.#retryAt = this.#deps.clock.now() + WAITING_MS;
    void this.#lead(next, WAITING_MS);
  }

  /** The version is a candidate that this process tries. */
  #retry(next: CredentialVersion): void {
    this.#claimed = next;
    if (this.#rotation.retry(next)) next.health.reset();
  }

  get #isRefused(): boolean {
    return this.#rotation.versions.every(({ health }) => health.refused);
  }

  /** True if another process has seen the upstream accept it since it was refused here. */
  async #isAcceptedSince(key: string, { refusedAt }: CredentialVersion): Promise<boolean> {
    const { store, clock } = this.#deps;
    const asked = clock.now();
    const ago = await this.#try(() => store.acceptedAgo(key));
    // The reply may come late, so it counts from the question on.
    return ago !== undefined && asked - ago > refusedAt;
  }

  async #lead({ key }: CredentialVersion, ms: number): Promise<boolean> {
    return (await this.#try(() => this.#deps.store.lead(`${key} next`, ms))) ?? false;
  }

  async #try<T>(call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      // The store reports its failures itself.
      return reportDefect(error);
    }
  }
}
