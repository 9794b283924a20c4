import { randomUUID } from 'node:crypto';
import { type Audit, batchEnd, type Waiter } from '../audit/audit.ts';
import type { AccessFacts, ResponseEnd, UpstreamFacts } from '../audit/record.ts';
import type { Clock } from '../base/clock.ts';
import { type ErrorCode, GatewayError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import { isToken } from '../base/raw-headers.ts';
import type { CredentialUsed, ExchangeFacts } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { RequestResult } from '../metrics/deployment-metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';

/** Longest request id that is taken from a client, in characters. */
const LONGEST_ID = 128;
/** Longest path in a log, in characters. */
const LONGEST_PATH = 1024;

/** Collects the data of one request for metrics, the audit log, the trace and the request log. */
export class RequestRecord implements ExchangeFacts, AccessFacts, Waiter {
  readonly #audit: Audit;
  readonly #clock: Clock;
  readonly requestId: string;
  readonly method: string;
  /** Arrival time on the gateway's clock, in milliseconds. */
  readonly begun: number;
  /** Undefined if tracing is off. */
  readonly trace: TracedWork | undefined;
  /** The client's own address, also behind trusted proxies; that of the connection until it is identified. */
  address: string;
  /** Empty until known, or if there is none. */
  client = '';
  /** Name of the API key that the client presented; empty: none. */
  key = '';
  deployment = '';
  site = '';
  operation = '';
  /** The request target, once it is parsed; its path alone, if it is refused before. */
  target = '';
  /** Outcome of the upstream's response, a name of the configuration. */
  outcome = '';
  attempts = 0;
  firstAttemptAt = 0;
  lastAttemptAt = 0;
  leftAt: number | undefined;
  connectMs = 0;
  challenged = false;
  upstreamAddress = '';
  egress = '';
  flightRequest = 0;
  credential: CredentialUsed | undefined;
  /** The client's rule that names the credential; empty: none does. */
  credentialRule = '';
  /** Code with which the client's rules would refuse it, which are only observed; empty: they do not. */
  wouldRefuse = '';
  #upstreamStatus = 0;
  /** True if the response has been passed to the audit log, which reads the next four. They do not change any more. */
  isRecorded = false;
  status = 0;
  code = '';
  upstream: UpstreamFacts | undefined;
  end: ResponseEnd | undefined;
  /** Number of the access record; 0: there is none. */
  #access = 0;
  #auditSpan: TracedWork | undefined;
  #onWritten: (() => void) | undefined;
  #onUnwritten: ((error: GatewayError) => void) | undefined;
  /** Body bytes received from the client. */
  bytesIn = 0;
  /** Body bytes passed on to the client. */
  bytesOut = 0;

  /** `method`: empty if the message could not be read. */
  constructor(
    audit: Audit,
    clock: Clock,
    requestId: string,
    method: string,
    address: string,
    trace?: TracedWork,
  ) {
    this.#audit = audit;
    this.#clock = clock;
    this.requestId = requestId;
    this.method = method;
    this.address = address;
    this.begun = clock.now();
    this.trace = trace;
  }

  /** Undefined: the request is not traced, or its trace is not sampled. */
  get traceId(): string | undefined {
    return this.trace?.traceId;
  }

  /**
   * Records the upstream's response; if it is whole, so is its record. Resolves when the record is written, so that the
   * response may leave.
   * @throws GatewayError `audit-unavailable`
   */
  responded({ status, isWhole, outcome, pendingBytes }: UpstreamResponse): Promise<void> {
    this.#upstreamStatus = status;
    this.outcome = outcome;
    return this.#record(status, '', isWhole ? pendingBytes : undefined);
  }

  /** Does the same for an error response of the gateway. */
  failed(error: GatewayError): Promise<void> {
    return this.#record(error.kind.status, error.code, this.bytesOut);
  }

  /** For the audit log. */
  recorded(): void {
    this.#auditSpan?.end();
    this.#onWritten?.();
  }

  /** For the audit log. */
  unrecorded(): void {
    this.#auditSpan?.end('audit-unavailable');
    this.#onUnwritten?.(auditUnavailable());
  }

  /** Records the outcome, if the response has a record that does not say it already, and ends the trace. */
  ended(status: number, code: string, durationMs: number): void {
    if (this.trace !== undefined) this.#endTrace(this.trace, status, code);
    if (this.#access === 0 || this.#hasEndedAsRecorded(status, code)) return;
    this.#audit.outcome({
      access: this.#access,
      requestId: this.requestId,
      status,
      code,
      outcome: this.outcome,
      bytes: { in: this.bytesIn, out: this.bytesOut },
      durationMs,
    });
  }

  #hasEndedAsRecorded(status: number, code: string): boolean {
    if (this.end === undefined || this.status !== status || this.code !== code) return false;
    const { bytes } = this.end;
    return bytes.in === this.bytesIn && bytes.out === this.bytesOut;
  }

  #endTrace(trace: TracedWork, status: number, code: string): void {
    trace.describe({
      'http.request.method': this.method,
      'http.response.status_code': status,
      'digest_gateway.client': this.client,
      'digest_gateway.deployment': this.deployment,
      'digest_gateway.operation': this.operation,
      ...(this.outcome !== '' && { 'digest_gateway.outcome': this.outcome }),
    });
    trace.end(code);
  }

  /** `bytesOut`: undefined if the response is not whole. */
  #record(status: number, code: string, bytesOut: number | undefined): Promise<void> {
    this.isRecorded = true;
    this.status = status;
    this.code = code;
    if (!this.#audit.enabled) return batchEnd();
    this.#describe(bytesOut);
    return new Promise((resolve, reject) => {
      this.#onWritten = resolve;
      this.#onUnwritten = reject;
      this.#access = this.attempts > 0 ? this.#audit.access(this, this) : this.#audit.refusal(this, this);
    });
  }

  #upstreamFacts(now: number): UpstreamFacts {
    const { attempts, challenged, upstreamAddress: address, egress, firstAttemptAt, connectMs } = this;
    // A request that never left waited all the time.
    const left = this.leftAt ?? now;
    const earlier = this.lastAttemptAt - left;
    return {
      status: this.#upstreamStatus,
      attempts,
      challenged,
      durationMs: now - firstAttemptAt,
      queueMs: left - firstAttemptAt,
      connectMs,
      earlierMs: attempts > 1 && earlier > connectMs ? earlier - connectMs : 0,
      address,
      egress,
    };
  }

  #describe(bytesOut: number | undefined): void {
    this.#auditSpan = this.trace?.child('audit');
    const { outcome } = this;
    const now = this.#clock.now();
    if (this.attempts > 0) this.upstream = this.#upstreamFacts(now);
    if (bytesOut === undefined) return;
    this.end = { outcome, bytes: { in: this.bytesIn, out: bytesOut }, durationMs: now - this.begun };
  }
}

/** For each request while the gateway stops. */
export function draining(): GatewayError {
  return new GatewayError('draining', 'This gateway is shutting down. Send the request again.');
}

/** The error while the audit log cannot be written. */
export function auditUnavailable(): GatewayError {
  return new GatewayError(
    'audit-unavailable',
    'The audit log cannot be written, so requests are being refused. Retry later.',
  );
}

/** Returns the client's X-Request-Id if it is a token (RFC 9110 §5.6.2), else a new one. */
export function requestIdOf(sent: string | undefined): string {
  // The path of a URL cannot have a dot segment, not even an encoded one: no address would lead to its records.
  const isUsable =
    sent !== undefined && sent.length <= LONGEST_ID && isToken(sent) && sent !== '.' && sent !== '..';
  return isUsable ? sent : randomUUID();
}

/** The outcome of a request. */
export interface RequestEnd {
  /** The status that the client received. */
  readonly status: number;
  /** Code of the gateway's error; empty if the upstream responded. */
  readonly code: string;
  readonly durationMs: number;
  /** Bytes of the response body. */
  readonly bytes: number;
}

/** Logs a request, if `log.requests` is on. The query is left out, because it can identify a person. */
export function logRequest(log: Log, record: RequestRecord, path: string, end: RequestEnd): void {
  const { requestId, client, address, deployment, operation, method, outcome, wouldRefuse } = record;
  const durationMs = Math.round(end.durationMs * 1000) / 1000;
  const found = { ...(outcome !== '' && { outcome }), ...(wouldRefuse !== '' && { wouldRefuse }) };
  const shown = path.slice(0, LONGEST_PATH);
  log.info(
    { requestId, client, address, deployment, operation, method, path: shown, ...end, durationMs, ...found },
    'request',
  );
}

/** Returns the path alone, which begins with a slash: anything before it can hold a password. */
export function pathOf(target: string): string {
  const [, path = ''] = /^(?:[a-z][a-z0-9+.-]*:\/\/[^/?]*)?(\/[^?]*|\*$)/i.exec(target) ?? [];
  return path;
}

/** Errors without a deployment that are no failure: another replica serves the request, or no gateway does. */
const NO_FAILURE: ReadonlySet<ErrorCode> = new Set(['draining', 'not-implemented', 'upgrade-unsupported']);

/** Returns the result of a request for the error budget. `error`: that of the gateway; `deployment`: empty if none is known. */
export function resultOf(error: GatewayError | undefined, deployment: string): RequestResult {
  if (error === undefined || error.kind.status < 500) return 'ok';
  return deployment === '' && NO_FAILURE.has(error.code) ? 'ok' : 'failed';
}
