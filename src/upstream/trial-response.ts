import type { RawHeaders } from '../base/raw-headers.ts';
import type { CredentialUsed, ResponseHandler } from '../handshake/response-handler.ts';

/** Statuses from this one on are failures. */
export const FAILURE = 400;

/**
 * The response to a request that tries a credential version. A failure can be kept from the client, since another
 * version may do better.
 */
export class TrialResponse implements ResponseHandler {
  readonly #handler: ResponseHandler;
  readonly #withholdsFailure: boolean;
  #status: number | undefined;

  constructor(handler: ResponseHandler, withholdsFailure: boolean) {
    this.#handler = handler;
    this.#withholdsFailure = withholdsFailure;
  }

  /** Undefined: no response came. */
  get status(): number | undefined {
    return this.#status;
  }

  /** True if the client has seen some of it. */
  get passed(): boolean {
    return this.#status !== undefined && !this.#withheld;
  }

  get #withheld(): boolean {
    return this.#withholdsFailure && (this.#status ?? 0) >= FAILURE;
  }

  attempt(credential: CredentialUsed): void {
    this.#handler.attempt(credential);
  }

  challenged(): void {
    this.#handler.challenged();
  }

  information(status: number, headers: RawHeaders): void {
    this.#handler.information(status, headers);
  }

  head(status: number, reason: string, headers: RawHeaders): void {
    this.#status = status;
    if (!this.#withheld) this.#handler.head(status, reason, headers);
  }

  data(chunk: Buffer): boolean {
    return this.#withheld || this.#handler.data(chunk);
  }

  onDrain(resume: () => void): void {
    if (!this.#withheld) this.#handler.onDrain(resume);
  }

  end(trailers: RawHeaders): void {
    if (!this.#withheld) this.#handler.end(trailers);
  }
}
