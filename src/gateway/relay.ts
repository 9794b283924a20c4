import { setImmediate as nextTurn } from 'node:timers/promises';
import type { BufferGc } from '../base/buffer-gc.ts';
import { GatewayError } from '../base/errors.ts';
import { fieldValue, joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import type { InterimReceiver } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Permit } from '../limits/limits.ts';
import type { DeploymentMetrics } from '../metrics/deployment-metrics.ts';
import type { DeploymentRules } from '../policy/rules.ts';
import type { ActiveRequest } from '../upstream/client-request.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { ClientExchange } from './client-exchange.ts';
import { hasBody } from './client-response.ts';
import { inboundLines, inboundTrailers, interimHeaders, ResponseFilter } from './headers.ts';
import type { Pace } from './pace.ts';
import type { RequestRecord } from './request-record.ts';

/** A deployment as its requests need it. */
export interface Deployment {
  readonly name: string;
  /** Host name that selects this deployment; undefined if the path selects it. */
  readonly host: string | undefined;
  readonly rules: DeploymentRules;
  readonly responseFilter: ResponseFilter;
  readonly metrics: DeploymentMetrics;
  readonly pace: Pace;
  readonly upstream: Upstream;
}

/** The parts of the gateway that every response needs. */
export interface DataPlane {
  readonly bufferGc: BufferGc;
  /** True if responses must have audit records. */
  readonly audited: boolean;
  /** True if every response is the last one of its connection. */
  isEnding: boolean;
}

/** Until a deployment has another one. */
const STRICTEST = new ResponseFilter();

/**
 * One request on its way through the gateway. It passes the upstream's response to the client as it comes, and holds the
 * upstream back while the client is slow.
 */
export class Relay implements InterimReceiver {
  readonly exchange: ClientExchange;
  readonly record: RequestRecord;
  readonly #plane: DataPlane;
  filter = STRICTEST;
  /** Undefined until it is admitted; also if no limit applies. */
  permit: Permit | undefined;
  /** The deployment, which counts it as in flight; undefined until it is admitted. */
  admittedTo: Deployment | undefined;
  /** The request as its upstream gets it; undefined: it was not sent. */
  sent: ActiveRequest | undefined;
  /** Interim responses that wait for the record of the response. */
  #early: [number, RawHeaders][] | undefined;
  /** True if the response says its length. */
  #hasLength = false;

  constructor(exchange: ClientExchange, record: RequestRecord, plane: DataPlane) {
    this.exchange = exchange;
    this.record = record;
    this.#plane = plane;
  }

  /** The response has been passed on, or is not needed any more. Can be called again. */
  endUpstream(): void {
    if (this.sent === undefined) return;
    this.record.outcome = this.sent.response?.outcome ?? '';
    this.admittedTo?.upstream.end(this.sent);
  }

  information(status: number, headers: RawHeaders): void {
    const { request, response } = this.exchange;
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    if (request.httpVersion !== '1.1') return;
    const fields = interimHeaders(headers, this.filter);
    if (this.#plane.audited) {
      this.#early ??= [];
      this.#early.push([status, fields]);
    } else {
      response.inform(status, fields);
    }
  }

  /**
   * Returns the field lines of the response for the client, with those of its limits.
   * @throws GatewayError `upstream-protocol`
   */
  linesOf(response: UpstreamResponse): string {
    const { status, headers } = response;
    this.#hasLength = fieldValue(headers, 'content-length') !== undefined;
    // A response with both is refused when it is read.
    if (!this.#hasLength) checkCoding(headers);
    const { httpVersion, method } = this.exchange.request;
    const trailers = httpVersion === '1.1' && !this.#hasLength && hasBody(status, method);
    const lines = inboundLines(response, this.filter, this.record.requestId, trailers);
    return this.permit === undefined ? lines : lines + this.permit.lines;
  }

  /**
   * Sends the response, whose record is written. Undefined: all of it has been written to the socket.
   * @throws GatewayError when the response breaks off
   */
  passOn(response: UpstreamResponse, lines: string): Promise<void> | undefined {
    if (this.#early !== undefined)
      for (const [status, early] of this.#early) this.exchange.response.inform(status, early);
    if (!response.isWhole) return this.#stream(response, lines);
    this.#begin(response, lines);
    this.#pass(response);
    return undefined;
  }

  /**
   * Sends the head with the first bytes of the body: until then a problem document can take its place. If the length is
   * unknown, as with server-sent events, these may take long, so the head waits only until the end of this turn of the
   * event loop.
   */
  async #stream(response: UpstreamResponse, lines: string): Promise<void> {
    const isComing = (): boolean => response.hasPieces || response.isWhole;
    if (this.#hasLength) {
      while (!isComing()) {
        // A piece that is withheld holds the upstream back, and nobody takes it.
        response.resume();
        await response.more();
      }
    } else if (!isComing()) {
      await nextTurn();
    }
    if (response.error !== undefined) throw response.error;
    this.#begin(response, lines);
    if (!isComing()) this.exchange.response.flush();
    while (!this.#pass(response)) await response.more();
  }

  #begin({ status, reason }: UpstreamResponse, lines: string): void {
    // A client that sees "Connection: close" sends its next request on another connection.
    if (this.#plane.isEnding) this.exchange.endConnection();
    this.exchange.response.begin(status, reason, lines, this.#hasLength);
  }

  /** Sends what has come of the body; true: that was its end. The last piece leaves with the end, in one write. */
  #pass(response: UpstreamResponse): boolean {
    const client = this.exchange.response;
    const { isWhole, trailers, headers } = response;
    const pieces = response.take();
    for (const { length } of pieces) {
      this.record.bytesOut += length;
      this.#plane.bufferGc.add(length, this.record.bytesOut);
    }
    const last = isWhole ? pieces.pop() : undefined;
    let hasRoom = true;
    for (const piece of pieces) hasRoom = client.write(piece);
    if (isWhole) {
      client.end(last, trailers.length > 0 ? inboundTrailers(trailers, headers, this.filter) : trailers);
    } else if (!hasRoom) {
      this.exchange.limitStall();
      response.pause();
      client.whenDrained(() => response.resume());
    }
    return isWhole;
  }
}

/**
 * The reader of the response removes the chunked coding. The client would not learn of another coding, and would
 * misread the body.
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
