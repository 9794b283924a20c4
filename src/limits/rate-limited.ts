import { type ErrorKind, GatewayError } from '../base/errors.ts';

/** A request beyond a limit, with the headers that say when to send it again. */
export class RateLimited extends GatewayError {
  readonly #headers: readonly string[];

  /** `seconds`: when a request may pass again, at least 1. `fields`: RateLimit and RateLimit-Policy, flat. */
  constructor(detail: string, seconds: number, fields: readonly string[]) {
    super('rate-limited', `${detail} Send the request again after ${seconds} s.`);
    this.#headers = ['retry-after', String(seconds), ...fields];
  }

  override get kind(): ErrorKind {
    return { ...super.kind, headers: this.#headers };
  }
}
