import type { AnswerSink, CredentialUsed } from './sink.ts';

/** From this status on an answer is a failure. */
export const FAILURE = 400;

/**
 * An answer to a request whose credential is being tried. It can keep a failure from the client, since
 * another credential may do better, and it remembers the status.
 */
export class TrialAnswer implements AnswerSink {
  readonly #sink: AnswerSink;
  readonly #withholdsFailure: boolean;
  #status: number | undefined;

  constructor(sink: AnswerSink, withholdsFailure: boolean) {
    this.#sink = sink;
    this.#withholdsFailure = withholdsFailure;
  }

  /** Undefined: no answer came. */
  get status(): number | undefined {
    return this.#status;
  }

  /** Whether the client has seen some of it. */
  get passed(): boolean {
    return this.#status !== undefined && !this.#withheld;
  }

  get #withheld(): boolean {
    return this.#withholdsFailure && (this.#status ?? 0) >= FAILURE;
  }

  attempt(credential: CredentialUsed): void {
    this.#sink.attempt(credential);
  }

  challenged(): void {
    this.#sink.challenged();
  }

  information(status: number, headers: readonly string[]): void {
    this.#sink.information(status, headers);
  }

  head(status: number, reason: string, headers: readonly string[]): void {
    this.#status = status;
    if (!this.#withheld) this.#sink.head(status, reason, headers);
  }

  data(chunk: Buffer): boolean {
    return this.#withheld || this.#sink.data(chunk);
  }

  onDrain(resume: () => void): void {
    if (!this.#withheld) this.#sink.onDrain(resume);
  }

  end(trailers: readonly string[]): void {
    if (!this.#withheld) this.#sink.end(trailers);
  }
}
