import { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { CredentialUsed, ResponseHandler } from '../handshake/response-handler.ts';

/** Statuses from this one on are failures. */
export const FAILURE = 400;
/** The bytes of a withheld failure that are read so that its connection can be used again. */
const MOST_WITHHELD = 64 * 1024;

/**
 * The response to a request that tries a credential version. A failure can be kept from the client, since another
 * version may do better.
 */
export class TrialResponse implements ResponseHandler {
  readonly #handler: ResponseHandler;
  readonly #withholdsFailure: boolean;
  #status: number | undefined;
  #withheldBytes = 0;

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

  attempt(credential: CredentialUsed, address: string): void {
    this.#handler.attempt(credential, address);
  }

  challenged(): void {
    this.#handler.challenged();
  }

  information(status: number, headers: RawHeaders): void {
    this.#handler.information(status, headers);
  }

  head(status: number, reason: string, headers: RawHeaders, isHttp11: boolean): void {
    this.#status = status;
    if (!this.#withheld) this.#handler.head(status, reason, headers, isHttp11);
  }

  /** @throws GatewayError when a failure that is withheld does not end */
  data(chunk: Buffer): boolean {
    if (!this.#withheld) return this.#handler.data(chunk);
    this.#withheldBytes += chunk.length;
    if (this.#withheldBytes > MOST_WITHHELD) throw withheldTooLong();
    return true;
  }

  onDrain(resume: () => void): void {
    if (!this.#withheld) this.#handler.onDrain(resume);
  }

  outcome(name: string): void {
    this.#handler.outcome(name);
  }

  end(trailers: RawHeaders): void {
    if (!this.#withheld) this.#handler.end(trailers);
  }
}

/** Reaches no client: the request goes on with another version. */
function withheldTooLong(): GatewayError {
  return new GatewayError(
    'upstream-protocol',
    `The upstream sent more than ${MOST_WITHHELD} bytes of a failure.`,
  );
}
