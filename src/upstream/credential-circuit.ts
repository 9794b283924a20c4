import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';

/** Between trials of a refused credential, in milliseconds: two a minute stay below every known lock-out. */
const TRIAL_INTERVAL_MS = 30_000;

/**
 * Keeps a refused credential away from the upstream: the gateway's address carries every client, and
 * some servers ignore an address after a few failures. Open, it lets one trial through per interval.
 */
export class CredentialCircuit {
  readonly #clock: Clock;
  #nextTrial: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get open(): boolean {
    return this.#nextTrial !== undefined;
  }

  /**
   * Lets a request go ahead; true: it is the trial of an open circuit.
   * @throws GatewayError `upstream-credential-refused` while no trial is due
   */
  admit(): boolean {
    if (this.#nextTrial === undefined) return false;
    if (this.#clock.now() < this.#nextTrial) throw credentialRefused();
    this.#nextTrial = this.#clock.now() + TRIAL_INTERVAL_MS;
    return true;
  }

  /** The upstream accepted the credential. */
  accepted(): void {
    this.#nextTrial = undefined;
  }

  /** The upstream refused the credential. */
  refused(): void {
    this.#nextTrial = this.#clock.now() + TRIAL_INTERVAL_MS;
  }
}

export function credentialRefused(): GatewayError {
  return new GatewayError(
    'upstream-credential-refused',
    'The upstream refuses the credential of this deployment; it is tried again twice a minute. Check user name and password, or ask the operator of the upstream.',
  );
}
