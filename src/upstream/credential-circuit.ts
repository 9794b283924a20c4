import type { Clock } from '../base/clock.ts';
import { credentialRefused } from '../handshake/errors.ts';

const MINUTE_MS = 60_000;

/**
 * Keeps a refused credential away from the upstream: the gateway's address carries every client, and
 * some servers ignore an address after a few failures. Attempts are spread over the minute, and no
 * minute has more of them than allowed.
 */
export class CredentialCircuit {
  readonly #clock: Clock;
  #perMinute: number;
  /** When the last attempts were made, the oldest first; as many as a minute may have. */
  #attempts: readonly number[] = [];

  constructor(clock: Clock, perMinute: number) {
    this.#clock = clock;
    this.#perMinute = perMinute;
  }

  /**
   * Lets one attempt with a refused credential through.
   * @throws GatewayError `upstream-credential-refused` while none is due
   */
  admit(): void {
    const last = this.#attempts.at(-1) ?? Number.NEGATIVE_INFINITY;
    const [first = last] = this.#attempts;
    const full = this.#attempts.length >= this.#perMinute;
    const due = Math.max(last + MINUTE_MS / this.#perMinute, full ? first + MINUTE_MS : last);
    if (this.#clock.now() < due) throw credentialRefused();
    this.attempted();
  }

  /** How many attempts a minute may have, those made so far included. */
  get perMinute(): number {
    return this.#perMinute;
  }

  set perMinute(perMinute: number) {
    this.#perMinute = perMinute;
    this.#attempts = this.#attempts.slice(-perMinute);
  }

  /** True if this minute may have another attempt. */
  get hasRoom(): boolean {
    const [first = Number.NEGATIVE_INFINITY] = this.#attempts;
    return this.#attempts.length < this.#perMinute || this.#clock.now() - first >= MINUTE_MS;
  }

  /** Attempts were refused that needed no permission, since the credential was not known to be refused. */
  attempted(count = 1): void {
    const attempts: number[] = Array(count).fill(this.#clock.now());
    this.#attempts = [...this.#attempts, ...attempts].slice(-this.#perMinute);
  }
}
