import { asGatewayError, GatewayError } from '../base/errors.ts';
import { expectGatewayError } from '../base/expected-errors.ts';
import { NO_FIELDS, type RawHeaders } from '../base/raw-headers.ts';
import { PIECE_OVERHEAD } from '../http1/body-reader.ts';

/** Bytes of a body that wait for its reader; then the upstream is paused. */
const MAX_BUFFERED = 64 * 1024;
/** Bounds of a body that is read only to use its connection again: bytes, and milliseconds. */
const MAX_DISCARDED = 64 * 1024;
const DISCARD_MS = 1_000;

/** Nothing is added to it. */
const NO_PIECES: Buffer[] = [];

/** The exchange that a response comes from. */
export interface ResponseSource {
  /** Stops reading until `resume`. */
  pause(): void;
  resume(): void;
  /** Nothing more of the response is needed. */
  abandon(): void;
}

/** Checks a body while it comes. */
export interface BodyCheck {
  update(piece: Buffer): void;
  /** @throws GatewayError when the body must not be passed on whole */
  finish(): void;
}

/**
 * A response of an upstream, returned at its head. The rest of the body comes as a stream: `take` the pieces that are
 * there, and wait for `more`. It is read to its end or abandoned.
 */
export class UpstreamResponse {
  readonly kind = 'response';
  readonly status: number;
  /** Latin-1 text as on the wire. */
  readonly reason: string;
  readonly headers: RawHeaders;
  /** False: HTTP/1.0. */
  readonly isHttp11: boolean;
  /** The field lines of the head as they came; empty: they are not known. */
  readonly lines: string;
  trailers = NO_FIELDS;
  /** Outcome of the configuration; empty: none, or it is not known yet. */
  outcome = '';
  // Only the response changes these.
  /** True if all of it has come; the pieces that were not taken are the last ones. */
  isWhole: boolean;
  /** The error with which the response broke off; undefined: it did not. */
  error: GatewayError | undefined;
  /** Bytes of the pieces that were not taken. */
  pendingBytes = 0;
  /** Undefined: it has ended. */
  #source: ResponseSource | undefined;
  #pieces = NO_PIECES;
  #isPaused = false;
  #checks: BodyCheck[] | undefined;
  #withholdsLast = false;
  /** Of the reader that waits for more; undefined: none does. */
  #onMore: (() => void) | undefined;
  #onError: ((error: GatewayError) => void) | undefined;

  /** `source`: undefined if nothing follows. */
  constructor(
    status: number,
    reason: string,
    headers: RawHeaders,
    isHttp11: boolean,
    source: ResponseSource | undefined,
    lines = '',
  ) {
    this.status = status;
    this.reason = reason;
    this.headers = headers;
    this.isHttp11 = isHttp11;
    this.lines = lines;
    this.isWhole = source === undefined;
    this.#source = source;
  }

  /** True if a piece of the body can be taken. */
  get hasPieces(): boolean {
    return this.#pieces.length > (this.#withholdsLast && !this.isWhole ? 1 : 0);
  }

  /**
   * Checks the body, of which nothing was taken yet. `withholdsLast`: its last piece can be taken once the check has
   * passed.
   * @throws any error of the check; the response is abandoned
   */
  inspect(check: BodyCheck, withholdsLast = false): void {
    this.#withholdsLast ||= withholdsLast;
    try {
      for (const piece of this.#pieces) check.update(piece);
      if (this.isWhole) check.finish();
    } catch (error) {
      this.abandon();
      throw error;
    }
    this.#checks ??= [];
    this.#checks.push(check);
  }

  /** Returns the pieces that have come since the last call. */
  take(): Buffer[] {
    const pieces = this.#pieces;
    if (pieces.length === 0) return pieces;
    const last = this.#withholdsLast && !this.isWhole ? pieces.pop() : undefined;
    this.#pieces = last === undefined ? NO_PIECES : [last];
    this.pendingBytes = last === undefined ? 0 : last.length;
    if (this.#isPaused) this.resume();
    return pieces;
  }

  /**
   * Resolves when the next piece has come, or the end.
   * @throws GatewayError when the response breaks off
   */
  more(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.error !== undefined) reject(this.error);
      else if (this.#source === undefined) resolve();
      else {
        this.#onMore = resolve;
        this.#onError = reject;
      }
    });
  }

  /** Holds the upstream back until `resume`. */
  pause(): void {
    this.#isPaused = true;
    this.#source?.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#source?.resume();
  }

  /**
   * Reads the rest and drops it.
   * @throws GatewayError when the response breaks off
   */
  async skip(): Promise<void> {
    while (!this.isWhole) {
      this.take();
      await this.more();
    }
  }

  /** Reads the rest and drops it, so that its connection can be used again. One that takes too long is closed. */
  async discard(): Promise<void> {
    if (this.isWhole) return;
    const timer = setTimeout(() => this.abandon(), DISCARD_MS);
    try {
      for (let left = MAX_DISCARDED; !this.isWhole; ) {
        for (const { length } of this.take()) left -= length;
        if (left < 0) this.abandon();
        await this.more();
      }
    } catch (error) {
      expectGatewayError(error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends a response whose rest is not needed. */
  abandon(): void {
    const source = this.#source;
    if (source === undefined) return;
    this.fail(new GatewayError('upstream-protocol', 'The rest of the response was not read.'));
    source.abandon();
  }

  /** For the source: the next piece has come, which is not empty. */
  push(piece: Buffer): void {
    // Most bodies have one piece, and a list that grows has room for many.
    if (this.#pieces.length === 0) this.#pieces = [piece];
    else this.#pieces.push(piece);
    this.pendingBytes += piece.length;
    if (this.#checks !== undefined) for (const check of this.#checks) check.update(piece);
    if (this.#onMore !== undefined) this.#wake();
    else if (this.pendingBytes + this.#pieces.length * PIECE_OVERHEAD >= MAX_BUFFERED) this.pause();
  }

  /** For the source: the response has been read whole. */
  end(trailers: RawHeaders): void {
    try {
      if (this.#checks !== undefined) for (const check of this.#checks) check.finish();
    } catch (error) {
      this.fail(asGatewayError(error));
      return;
    }
    this.trailers = trailers;
    this.#source = undefined;
    this.isWhole = true;
    if (this.#onMore !== undefined) this.#wake();
  }

  /** For the source: the response broke off. */
  fail(error: GatewayError): void {
    if (this.#source === undefined) return;
    this.#source = undefined;
    this.error = error;
    this.#onError?.(error);
  }

  #wake(): void {
    const onMore = this.#onMore;
    this.#onMore = undefined;
    this.#onError = undefined;
    onMore?.();
  }
}

/** There was no connection, or it broke before the first byte of a response. */
export interface Lost {
  readonly kind: 'lost';
  readonly error: GatewayError;
  /** True if the connection broke; false if it could not be made. */
  readonly broke: boolean;
  /** True if bytes of the request may have reached the upstream. */
  readonly sent: boolean;
  /** True if the connection had been idle: the upstream may have closed it before the request came. */
  readonly reused: boolean;
}
