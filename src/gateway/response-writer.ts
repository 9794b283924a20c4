import type { Waiter } from '../audit/audit.ts';
import type { BufferGc } from '../base/buffer-gc.ts';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import { PIECE_OVERHEAD } from '../base/pieces.ts';
import { fieldValue, joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import type { CredentialUsed, ResponseHandler } from '../handshake/response-handler.ts';
import type { Permit } from '../limits/permit.ts';
import type { ClientExchange } from './client-exchange.ts';
import type { ClientResponse } from './client-response.ts';
import { inboundHeaders, inboundTrailers, interimHeaders, ResponseFilter } from './headers.ts';
import type { RequestRecord } from './request-record.ts';

/** Body bytes that are buffered while the record is being written; then the upstream is paused. */
const MOST_HELD = 64 * 1024;
const NO_ORIGIN_FIELDS = new ResponseFilter();

/** The parts of the gateway that every response needs. */
export interface DataPlane {
  readonly bufferGc: BufferGc;
  /** True if responses must have audit records. */
  readonly audited: boolean;
  /** True if every response is the last one of its connection. */
  isEnding(): boolean;
}

interface Head {
  readonly status: number;
  readonly phrase: string;
  readonly headers: string[];
}

/** The part of a response that has come from the upstream before its record was written. */
interface Held extends Head {
  readonly chunks: Buffer[];
  size: number;
  /** Undefined until the response ends. */
  trailers: RawHeaders | undefined;
}

/**
 * Passes the upstream response to a client as it comes, and pauses the upstream when the client is slow. No
 * byte is sent before the record of the response is in the audit log.
 */
export class ResponseWriter implements ResponseHandler, Waiter {
  readonly #record: RequestRecord;
  readonly #exchange: ClientExchange;
  readonly #response: ClientResponse;
  readonly #plane: DataPlane;
  #resume: (() => void) | undefined;
  /** Interim responses that wait for the record. */
  #early: [number, RawHeaders][] | undefined;
  #held: Held | undefined;
  /** The head of a response of which no byte has been sent. */
  #head: Head | undefined;
  /** The reason why the buffered response is not sent. */
  #failure: GatewayError | undefined;
  #dropped = false;
  /** Headers of the upstream, on which its trailers depend. */
  #received: RawHeaders = [];
  #onSettled: (() => void) | undefined;
  /** Body bytes passed on. */
  bytes = 0;
  /** Set before a response can come. */
  filter = NO_ORIGIN_FIELDS;
  /** True if the request counts as one in flight. */
  inFlight = false;
  /** The permit of the limits; undefined if nothing limits the request. */
  permit: Permit | undefined;

  constructor(exchange: ClientExchange, record: RequestRecord, plane: DataPlane) {
    this.#exchange = exchange;
    this.#response = exchange.response;
    this.#record = record;
    this.#plane = plane;
  }

  attempt(credential: CredentialUsed, address: string): void {
    this.#record.attempt(credential, address);
  }

  challenged(): void {
    this.#record.challenged();
  }

  information(status: number, headers: RawHeaders): void {
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    if (this.#exchange.request.httpVersion !== '1.1') return;
    // An interim response is part of the response, which has no record yet.
    if (this.#plane.audited) {
      this.#early ??= [];
      this.#early.push([status, interimHeaders(headers, this.filter)]);
    } else {
      this.#response.inform(status, interimHeaders(headers, this.filter));
    }
  }

  head(status: number, reason: string, headers: RawHeaders, isHttp11: boolean): void {
    checkCoding(headers);
    this.#received = headers;
    const { httpVersion, method } = this.#exchange.request;
    const trailers = httpVersion === '1.1' && isChunked(status, method, headers);
    const fields = inboundHeaders(headers, this.filter, status, this.#record.requestId, trailers, isHttp11);
    if (this.permit !== undefined) fields.push(...this.permit.fields);
    this.#held = { status, phrase: reason, headers: fields, chunks: [], size: 0, trailers: undefined };
    this.#record.responded(status, this);
  }

  recorded(): void {
    const held = this.#held;
    this.#held = undefined;
    // The audit log calls this for many responses in a row: an error must end this one only.
    try {
      if (held !== undefined && !this.#dropped) this.#release(held);
    } catch (error) {
      this.#fail(asGatewayError(error));
    }
    this.#onSettled?.();
  }

  unrecorded(): void {
    this.#held = undefined;
    this.#fail(auditUnavailable());
    this.#onSettled?.();
  }

  #fail(failure: GatewayError): void {
    this.#failure = failure;
    this.#exchange.cancellation.cancel(failure);
  }

  /** True if no part of the response waits for a record and nothing failed. */
  get isSettled(): boolean {
    return this.#held === undefined && this.#failure === undefined;
  }

  /**
   * Resolves when the record is written and the buffered part of the response has been sent.
   * @throws GatewayError `audit-unavailable` if the record cannot be written, or the error that kept the
   * response from being sent
   */
  async settled(): Promise<void> {
    if (this.#held !== undefined) {
      await new Promise<void>((resolve) => {
        this.#onSettled = resolve;
      });
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Discards the buffered part of the response. */
  drop(): void {
    this.#dropped = true;
    this.#head = undefined;
  }

  #release(held: Held): void {
    const { chunks, trailers } = held;
    if (this.#early !== undefined)
      for (const [code, fields] of this.#early) this.#response.inform(code, fields);
    this.#head = held;
    // Head and last piece of a whole response leave in one write.
    const last = trailers === undefined ? undefined : chunks.pop();
    let more = true;
    for (const chunk of chunks) more = this.#pass(chunk);
    if (trailers !== undefined) this.#finish(trailers, last);
    else if (this.#head !== undefined) this.#sendHeadSoon(held);
    else if (more) this.#resume?.();
  }

  /**
   * The head is sent with the first bytes of the body: until then a problem document can replace it. If the
   * length is unknown, as with server-sent events, the first bytes may take long, so the head waits only
   * until the end of this turn of the event loop.
   */
  #sendHeadSoon({ headers }: Head): void {
    if (fieldValue(headers, 'content-length') === undefined) setImmediate(ResponseWriter.#sendHead, this);
  }

  static #sendHead(writer: ResponseWriter): void {
    if (writer.#head === undefined) return;
    try {
      writer.#writeHead();
      writer.#response.flush();
    } catch (error) {
      writer.#fail(asGatewayError(error));
    }
  }

  #writeHead(): void {
    if (this.#head === undefined) return;
    const { status, phrase, headers } = this.#head;
    this.#head = undefined;
    // A client that sees "Connection: close" sends its next request on another connection.
    if (this.#plane.isEnding()) this.#exchange.endConnection();
    this.#response.begin(status, phrase, headers);
  }

  data(chunk: Buffer): boolean {
    const held = this.#held;
    if (held === undefined) return this.#pass(chunk);
    held.chunks.push(chunk);
    held.size += chunk.length + PIECE_OVERHEAD;
    return held.size < MOST_HELD;
  }

  #pass(chunk: Buffer): boolean {
    if (this.#dropped || chunk.length === 0) return true;
    this.#writeHead();
    this.#count(chunk);
    const more = this.#response.write(chunk);
    if (more) return true;
    this.#exchange.limitStall();
    if (this.#resume !== undefined) this.#response.whenDrained(this.#resume);
    return false;
  }

  onDrain(resume: () => void): void {
    this.#resume = resume;
  }

  outcome(name: string): void {
    this.#record.outcome = name;
  }

  end(trailers: RawHeaders): void {
    if (this.#held === undefined) this.#finish(trailers);
    else this.#held.trailers = trailers;
  }

  #finish(trailers: RawHeaders, last?: Buffer): void {
    if (this.#dropped) return;
    this.#writeHead();
    if (last !== undefined) this.#count(last);
    this.#response.end(
      last,
      trailers.length > 0 ? inboundTrailers(trailers, this.#received, this.filter) : trailers,
    );
  }

  #count({ length }: Buffer): void {
    this.bytes += length;
    this.#plane.bufferGc.add(length, this.bytes);
  }
}

/** The error while the audit log cannot be written. */
export function auditUnavailable(): GatewayError {
  return new GatewayError(
    'audit-unavailable',
    'The audit log cannot be written, so requests are being refused. Retry later.',
  );
}

/**
 * The reader of the response removes the chunked coding. The client would not be told of any other coding, and would misread the
 * body.
 */
function checkCoding(headers: RawHeaders): void {
  const coding = joinedValue(headers, 'transfer-encoding');
  if (coding === undefined || coding.toLowerCase() === 'chunked') return;
  throw new GatewayError(
    'upstream-protocol',
    'The upstream sent a Transfer-Encoding that the request does not allow (RFC 9112 §7.4).',
    undefined,
    { proxyError: 'http_response_transfer_coding' },
  );
}

function isChunked(status: number, method: string | undefined, headers: RawHeaders): boolean {
  if (method === 'HEAD' || status === 204 || status === 304) return false;
  return fieldValue(headers, 'content-length') === undefined;
}
