import type { Audit } from '../audit/audit.ts';
import type { BufferGc } from '../base/buffer-gc.ts';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, type ErrorCode, GatewayError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import { fieldValue, joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import type { Identification } from '../identity/identification.ts';
import type { Limits, Permit } from '../limits/limits.ts';
import type { DeploymentMetrics } from '../metrics/deployment-metrics.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { decide, type Grant } from '../policy/decide.ts';
import type { DeploymentRules } from '../policy/rules.ts';
import type { Tracing } from '../tracing/tracing.ts';
import type { BodySource } from '../transport/request-body.ts';
import type { ActiveRequest, Upstream } from '../upstream/upstream.ts';
import { AccessLog, type AccessTarget, UNREADABLE } from './access-log.ts';
import { CLIENT_CLOSED, type ClientExchange } from './client-exchange.ts';
import { sendProblem } from './client-response.ts';
import { ClientRefusals, ErrorLog } from './error-log.ts';
import { countDownForwards, outboundHeaders, type ResponseFilter } from './headers.ts';
import type { Pace } from './pace.ts';
import {
  checkAuthority,
  checkConnect,
  checkHost,
  checkMethod,
  checkSite,
  checkUpgrade,
} from './request-checks.ts';
import type { RequestHead } from './request-reader.ts';
import {
  type Arrival,
  auditUnavailable,
  logRequest,
  pathOf,
  type RequestEnd,
  RequestRecord,
  requestIdOf,
} from './request-record.ts';
import { type DataPlane, ResponseWriter } from './response-writer.ts';
import type { Routes } from './routes.ts';
import { parseTarget } from './target.ts';

export interface Deployment {
  readonly name: string;
  /** Host name that selects this deployment; undefined if the path selects it. */
  readonly host: string | undefined;
  readonly rules: DeploymentRules;
  readonly responseFilter: ResponseFilter;
  readonly pace: Pace;
  readonly upstream: Upstream;
}

export interface GatewayOptions {
  readonly identification: Identification;
  readonly routes: Routes<Deployment>;
  /** Host names of the gateway that clients may use, from `canonicalHost`; undefined: any. */
  readonly hosts: ReadonlySet<string> | undefined;
  /** True if each request is logged. */
  readonly logRequests: boolean;
  /** Undefined without an access log. */
  readonly accessLog: AccessTarget | undefined;
}

export interface GatewayDeps {
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly bufferGc: BufferGc;
  /** Undefined if tracing is off. */
  readonly tracing: Tracing | undefined;
  readonly limits: Limits;
}

/** The data plane: passes a client request to its upstream and the response back. */
export class Gateway {
  readonly #deps: GatewayDeps;
  readonly accessLog: AccessLog;
  readonly errors: ErrorLog;
  readonly refusals = new ClientRefusals();
  readonly #plane: DataPlane;
  #options: GatewayOptions;
  #ending = false;
  #refusing = false;

  constructor(options: GatewayOptions, deps: GatewayDeps) {
    const { audit, clock, log, metrics, bufferGc } = deps;
    this.#deps = deps;
    this.#options = options;
    this.accessLog = new AccessLog(log, () => metrics.accessLogLost.inc());
    this.accessLog.configure(options.accessLog);
    this.errors = new ErrorLog(log, clock);
    this.#plane = { bufferGc, audited: audit.enabled, isEnding: () => this.#ending };
  }

  /** Replaces the options for later requests. */
  configure(options: GatewayOptions): void {
    this.#options = options;
    this.accessLog.configure(options.accessLog);
  }

  /** Makes every later response the last one of its connection. */
  endConnections(): void {
    this.#ending = true;
  }

  /** Refuses later requests. */
  refuseRequests(): void {
    this.#ending = true;
    this.#refusing = true;
  }

  /** Handles one request until its response has been sent. If it rejects, the connection must be ended. */
  async handle(exchange: ClientExchange): Promise<void> {
    const { request, socket } = exchange;
    const { method, headers } = request;
    const requestId = requestIdOf(joinedValue(headers, 'x-request-id'));
    const arrival = { requestId, method, address: socket.remoteAddress ?? '' };
    const trace = this.#deps.tracing?.request(headers, { 'digest_gateway.request_id': requestId });
    const record = new RequestRecord(this.#deps.audit, this.#deps.clock, arrival, trace);
    let permit: Permit | undefined;
    let metrics: DeploymentMetrics | undefined;
    let sent: Sent | undefined;
    let error: GatewayError | undefined;
    try {
      checkAuthority(request);
      this.#admit();
      checkConnect(request);
      const target = parseTarget(request.target, fieldValue(headers, 'host'));
      record.target = target.path;
      checkMethod(request);
      checkUpgrade(request);
      checkHost(this.#options.hosts, target);
      const identified = this.#options.identification.identify(socket, headers);
      const { client, address, ambient } = identified instanceof Promise ? await identified : identified;
      record.client = client.id;
      record.address = address;
      if (ambient) checkSite(request, target, socket, this.#options.identification);
      const found = this.#options.routes.find(target);
      record.deployment = found.name;
      exchange.pace = found.pace;
      const fields = fieldsFor(found, request, trace === undefined);
      const hasBody = request.body !== 0;
      const grant = decide(found.rules, client, { method, target: target.path, headers: fields, hasBody });
      this.#countDropped(fields, grant, found.name, client.id);
      record.site = grant.site;
      record.operation = grant.operation;
      permit = this.#deps.limits.take(client.id, found.name);
      metrics = this.#deps.metrics.deployment(found.name);
      metrics.requestsInFlight.inc();
      const writer = new ResponseWriter(exchange, record, found.responseFilter, this.#plane);
      sent = {
        upstream: found.upstream,
        active: this.#begin(found, exchange, grant, record, writer, metrics),
      };
      const response = await found.upstream.send(sent.active, grant.credential);
      const lines = writer.linesOf(response) + (permit?.lines ?? '');
      await record.responded(response.status);
      const passing = writer.passOn(response, lines);
      if (passing !== undefined) await passing;
      endSent(sent, record);
    } catch (thrown) {
      if (sent !== undefined) endSent(sent, record);
      const failure = asGatewayError(thrown);
      // The connection is closed for further requests before the record is written, so that none is read
      // meanwhile.
      endIfLast(exchange, failure, this.#ending, record.client !== '');
      error = await this.#recordFailure(failure, record);
      if (error.code === 'internal-error') this.#deps.metrics.internalErrors.inc();
      this.errors.add(record.deployment, error, requestId);
      this.refusals.add(record.client, record.deployment, error, requestId);
      fail(exchange, error, requestId, permit);
    } finally {
      exchange.linger();
      await exchange.left();
      permit?.release();
      metrics?.requestsInFlight.inc(-1);
      error ??= this.#unsent(exchange, record);
      const { hasHead, status: written } = exchange.response;
      // A client that has gone gets no status; one that leaves later has got another one than its request counts with.
      const status =
        error !== undefined && (!hasHead || error.kind.status === CLIENT_CLOSED.kind.status)
          ? error.kind.status
          : written;
      const durationMs = this.#deps.clock.now() - record.begun;
      this.#end(record, request, {
        status,
        code: error?.code ?? '',
        durationMs,
        bytes: record.bytesOut,
      });
    }
  }

  /** Returns the reason why a response was not sent completely; undefined if it was. */
  #unsent({ response, cancellation }: ClientExchange, record: RequestRecord): GatewayError | undefined {
    if (response.isFinished) return undefined;
    const error = cancellation.reason ?? CLIENT_CLOSED;
    this.errors.add(record.deployment, error, record.requestId);
    return error;
  }

  /**
   * Records and counts a message that cannot be handled as a request. Resolves to the error for the
   * response.
   */
  async refuse(refusal: GatewayError, arrival: Arrival): Promise<GatewayError> {
    const record = new RequestRecord(this.#deps.audit, this.#deps.clock, arrival);
    const failure = this.#deps.audit.refusing ? auditUnavailable() : refusal;
    const error = await this.#recordFailure(failure, record);
    const { status } = error.kind;
    this.#deps.metrics.deployment('').operation('').requests('', status, error.code).inc();
    this.accessLog.add({ ...UNREADABLE, address: arrival.address, status });
    return error;
  }

  /** Waits until the error has its audit record; resolves to the error for the response. */
  async #recordFailure(error: GatewayError, record: RequestRecord): Promise<GatewayError> {
    if (error.code === 'audit-unavailable') {
      this.#deps.audit.missed();
      return error;
    }
    if (record.isRecorded) return error;
    try {
      await record.failed(error);
      return error;
    } catch (thrown) {
      return asGatewayError(thrown);
    }
  }

  /** Begins the upstream request. The caller sends and ends it. */
  #begin(
    { upstream }: Deployment,
    exchange: ClientExchange,
    { target, headers, noTotalTimeout }: Grant,
    record: RequestRecord,
    interim: ResponseWriter,
    metrics: DeploymentMetrics,
  ): ActiveRequest {
    const { cancellation, request } = exchange;
    const { client, trace } = record;
    const body = request.body === 0 ? undefined : this.#bodyOf(exchange, record, metrics);
    return upstream.begin({
      client,
      method: request.method,
      target,
      headers,
      body,
      trace,
      noTotalTimeout,
      facts: record,
      interim,
      cancellation,
    });
  }

  /** The body of a request, which is counted as it is read. */
  #bodyOf(
    exchange: ClientExchange,
    record: RequestRecord,
    metrics: DeploymentMetrics,
  ): BodySource | undefined {
    return exchange.bodySource((count, framing) => {
      record.bytesIn += count;
      this.#plane.bufferGc.add(count, record.bytesIn);
      metrics.requestBytes.inc(count + framing);
    });
  }

  #countDropped(fields: RawHeaders, { headers }: Grant, deployment: string, client: string): void {
    const dropped = (fields.length - headers.length) / 2;
    if (dropped > 0) this.#deps.metrics.requestFieldsDropped.inc({ deployment, client }, dropped);
  }

  #admit(): void {
    if (this.#deps.audit.refusing) throw auditUnavailable();
    if (this.#refusing) {
      throw new GatewayError('draining', 'This gateway is shutting down. Send the request again.');
    }
  }

  /** Counts, records, traces and logs the outcome of a request. */
  #end(record: RequestRecord, request: RequestHead, end: RequestEnd): void {
    const { status, code, durationMs, bytes } = end;
    const metrics = this.#deps.metrics.deployment(record.deployment);
    const operation = metrics.operation(record.operation);
    operation.requests(record.client, status, code).inc();
    operation.duration.observe(durationMs / 1000, record.trace?.traceId, record.requestId);
    metrics.responseBytes.inc(bytes);
    if (record.outcome !== '') metrics.outcome(record.outcome).inc();
    record.ended(status, code, durationMs);
    if (!this.#options.logRequests && !this.accessLog.enabled) return;
    const path = pathOf(request.target);
    if (this.#options.logRequests) logRequest(this.#deps.log, record, path, end);
    if (!this.accessLog.enabled) return;
    const { address, client, method } = record;
    const { httpVersion, headers } = request;
    const referer = joinedValue(headers, 'referer');
    const userAgent = joinedValue(headers, 'user-agent');
    this.accessLog.add({ address, client, method, path, httpVersion, status, bytes, referer, userAgent });
  }
}

/** Returns the fields that the upstream gets unless a rule forbids one. */
function fieldsFor({ upstream }: Deployment, request: RequestHead, untraced: boolean): RawHeaders {
  const keepTrace = untraced && upstream.options.forwardTrace;
  const fields = outboundHeaders(request.headers, request.httpVersion, keepTrace);
  if (request.method === 'OPTIONS') countDownForwards(fields);
  return fields;
}

/**
 * After a malformed request the start of the next one is uncertain: the next bytes could be a smuggled request. RFC 9110
 * §15.5.9 asks for it after a timeout; what follows CONNECT is for the tunnel.
 */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'bad-request',
  'headers-too-large',
  'request-timeout',
  'connect-unsupported',
]);

/**
 * Ends the connection with this response if it must end. The start of the next request is uncertain after a body that was
 * not asked for, too; and chunks of an unknown client are not read, since that would cost more than sending them.
 */
function endIfLast(
  exchange: ClientExchange,
  { code }: GatewayError,
  ending: boolean,
  isKnown: boolean,
): void {
  const { socket, request, response } = exchange;
  if (socket.destroyed || response.hasHead) return;
  if (request.expectsContinue || ending || ENDS_CONNECTION.has(code)) exchange.endConnection();
  if (!isKnown) exchange.refuseChunks();
}

/** Sends the error to the client if possible; a response that has begun can only be aborted. */
function fail(
  exchange: ClientExchange,
  error: GatewayError,
  requestId: string,
  permit: Permit | undefined,
): void {
  const { socket, response } = exchange;
  if (socket.destroyed) return;
  if (response.hasHead) exchange.breakOff();
  else sendProblem(response, error, requestId, permit?.lines);
}

/** A request that was sent to an upstream. */
interface Sent {
  readonly upstream: Upstream;
  readonly active: ActiveRequest;
}

/** The response has been passed on, or is not needed any more. Can be called again. */
function endSent({ upstream, active }: Sent, record: RequestRecord): void {
  record.outcome = active.response?.outcome ?? '';
  upstream.end(active);
}
