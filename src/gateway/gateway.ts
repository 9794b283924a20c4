import type { Audit } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import { reportError } from '../base/report-error.ts';
import type { SpentBuffers } from '../base/spent-buffers.ts';
import type { Identification } from '../identity/identification.ts';
import type { Limits } from '../limits/limits.ts';
import type { Permit } from '../limits/permit.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { decide, type Grant } from '../policy/decide.ts';
import type { DeploymentRules } from '../policy/rules.ts';
import type { Tracing } from '../tracing/tracing.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { checkHost, checkSite } from './browsers.ts';
import { auditUnavailable, ClientAnswer, type DataPlane } from './client-answer.ts';
import { bodyOf, CLIENT_CLOSED, type ClientExchange } from './client-exchange.ts';
import { FaultLog, type RecentFault } from './fault-log.ts';
import { checkFraming, checkMethod } from './framing.ts';
import { outboundHeaders } from './headers.ts';
import { linger } from './linger.ts';
import { sendProblem } from './problem.ts';
import { requestIdOf } from './request-id.ts';
import { logRequest, type RequestEnd } from './request-log.ts';
import { type Arrival, RequestRecord } from './request-record.ts';
import type { Routes } from './routes.ts';
import { parseTarget } from './target.ts';

export interface Deployment {
  readonly name: string;
  /** The host name that requests need to come here; undefined: their paths lead here. */
  readonly host: string | undefined;
  readonly rules: DeploymentRules;
  readonly upstream: Upstream;
  /** Host and port of the upstream. */
  readonly address: string;
}

export interface GatewayOptions {
  readonly identification: Identification;
  readonly routes: Routes<Deployment>;
  /** Names that clients may call the gateway by, from `canonicalHost`; undefined: any. */
  readonly hosts: ReadonlySet<string> | undefined;
  /** Whether each request gets a line in the log. */
  readonly logRequests: boolean;
}

export interface GatewayExternals {
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly spent: SpentBuffers;
  /** Undefined: nothing is traced. */
  readonly tracing: Tracing | undefined;
  readonly limits: Limits;
}

/** The data plane: takes a client's request through to its upstream and the answer back. */
export class Gateway {
  readonly #audit: Audit;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #limits: Limits;
  readonly #tracing: Tracing | undefined;
  readonly #faults: FaultLog;
  readonly #plane: DataPlane;
  #options: GatewayOptions;
  #ending = false;
  #refusing = false;

  constructor(options: GatewayOptions, externals: GatewayExternals) {
    const { audit, clock, log, metrics, spent, limits, tracing } = externals;
    this.#audit = audit;
    this.#options = options;
    this.#clock = clock;
    this.#log = log;
    this.#metrics = metrics;
    this.#limits = limits;
    this.#tracing = tracing;
    this.#faults = new FaultLog(log, clock);
    this.#plane = { spent, audited: audit.enabled, isEnding: () => this.#ending };
  }

  /** New rules for the requests that come from now on. */
  configure(options: GatewayOptions): void {
    this.#options = options;
  }

  /** What went wrong lately, the newest first. */
  get recentFaults(): readonly RecentFault[] {
    return this.#faults.recent;
  }

  /** Every response from now on is the last of its connection. */
  endConnections(): void {
    this.#ending = true;
  }

  /** Refuses the requests that come from now on. */
  refuseRequests(): void {
    this.#ending = true;
    this.#refusing = true;
  }

  /** One request from its head until its response has left. Never rejects: an error that is left ends the connection. */
  async handle(exchange: ClientExchange): Promise<void> {
    try {
      await this.#handle(exchange);
    } catch (error) {
      exchange.req.socket.destroy();
      reportError(error);
    }
  }

  async #handle(exchange: ClientExchange): Promise<void> {
    const { req, res } = exchange;
    const requestId = requestIdOf(req.headers['x-request-id']);
    const { method = '', socket, rawHeaders: headers } = req;
    const arrival = { requestId, method, address: socket.remoteAddress ?? '' };
    const trace = this.#tracing?.request(req.headers, { 'digest_gateway.request_id': requestId });
    const record = new RequestRecord(this.#audit, this.#clock, arrival, trace);
    const answer = new ClientAnswer(exchange, record, this.#plane);
    let error: GatewayError | undefined;
    try {
      checkFraming(req, exchange.protocol);
      this.#admit();
      const target = parseTarget(req.url ?? '', req.headers.host);
      record.targeted(target.path);
      checkMethod(req);
      checkHost(this.#options.hosts, target);
      const identified = this.#options.identification.identify(req);
      const { client, address, ambient } = identified instanceof Promise ? await identified : identified;
      record.identified(client.id, address);
      if (ambient) checkSite(req.headers, target);
      const found = this.#options.routes.find(target);
      record.routed(found.name, found.address);
      exchange.idleMs = found.upstream.options.timeouts.idle;
      const grant = decide(found.rules, client, { method, target: target.path, headers });
      record.granted(grant.site, grant.operation);
      answer.permit = this.#limits.take(client.id, found.name);
      await this.#forward(found, exchange, grant, answer, record);
      if (!answer.isSettled) await answer.settled();
    } catch (thrown) {
      answer.drop();
      const failure = asGatewayError(thrown);
      const close = isLast(exchange, failure, this.#ending);
      // At once: nothing behind it is read while its record is being written.
      if (close) exchange.refuseRest();
      error = await this.#recordFailure(failure, record, answer);
      if (error.code === 'internal-error') this.#metrics.internalErrors.inc();
      this.#faults.add(record.deployment, error, requestId);
      fail(exchange, error, requestId, close, answer.permit);
    } finally {
      linger(req);
      await exchange.left();
      answer.permit?.release();
      if (answer.inFlight) this.#metrics.requestsInFlight.dec({ deployment: record.deployment });
      error ??= this.#unsent(exchange, record);
      const status = error?.kind.status === CLIENT_CLOSED.kind.status ? error.kind.status : res.statusCode;
      const durationMs = this.#clock.now() - record.begun;
      this.#end(record, req.url ?? '', {
        status,
        code: error?.code ?? '',
        durationMs,
        bytes: answer.bytes,
      });
    }
  }

  /** Why a whole response did not leave whole; undefined: it did. */
  #unsent({ res, cancellation }: ClientExchange, record: RequestRecord): GatewayError | undefined {
    if (res.writableFinished) return undefined;
    const error = cancellation.reason ?? CLIENT_CLOSED;
    this.#faults.add(record.deployment, error, record.requestId);
    return error;
  }

  /** Refuses what is no request that can be handled. Records and counts it; resolves to the error to answer with. */
  async refuse(refusal: GatewayError, arrival: Arrival): Promise<GatewayError> {
    const record = new RequestRecord(this.#audit, this.#clock, arrival);
    const told = this.#audit.refusing ? auditUnavailable() : refusal;
    const error = await this.#recordFailure(told, record, undefined);
    const labels = { deployment: '', operation: '', client: '' };
    this.#metrics.requests.inc({ ...labels, status: String(error.kind.status), code: error.code });
    return error;
  }

  /** Sees to it that the failure has its record before it is answered; gives the one to answer with. */
  async #recordFailure(
    error: GatewayError,
    record: RequestRecord,
    answer: ClientAnswer | undefined,
  ): Promise<GatewayError> {
    if (error.code === 'audit-unavailable') {
      this.#audit.missed();
      return error;
    }
    try {
      if (record.recorded) await answer?.settled();
      else if (!(await record.failed(error))) throw auditUnavailable();
      return error;
    } catch (thrown) {
      return asGatewayError(thrown);
    }
  }

  async #forward(
    { name, upstream }: Deployment,
    exchange: ClientExchange,
    { target, credential }: Grant,
    answer: ClientAnswer,
    record: RequestRecord,
  ): Promise<void> {
    const { req, cancellation } = exchange;
    const labels = { deployment: name };
    const body = bodyOf(exchange, (count) => {
      this.#plane.spent.add(count);
      record.bytesIn += count;
      this.#metrics.requestBytes.inc(labels, count);
    });
    const { trace } = record;
    const keepTrace = trace === undefined && upstream.options.forwardTrace;
    const headers = outboundHeaders(req.rawHeaders, req.httpVersion, keepTrace);
    answer.inFlight = true;
    this.#metrics.requestsInFlight.inc(labels);
    const request = { method: req.method ?? '', target, headers, body, trace };
    await upstream.send(request, credential, answer, cancellation);
  }

  #admit(): void {
    if (this.#audit.refusing) throw auditUnavailable();
    if (this.#refusing) {
      throw new GatewayError('draining', 'This gateway is shutting down. Send the request again.');
    }
  }

  /** Counts, records, traces and logs how a request ended. */
  #end(record: RequestRecord, target: string, end: RequestEnd): void {
    const { deployment, client, operation } = record;
    const { status, code, durationMs, bytes } = end;
    const { requests, responseBytes } = this.#metrics;
    requests.inc({ deployment, operation, client, status: String(status), code });
    this.#metrics.observeRequest({ deployment, operation }, durationMs / 1000, record.trace?.traceId);
    responseBytes.inc({ deployment }, bytes);
    record.ended(status, code, bytes, durationMs);
    if (this.#options.logRequests) logRequest(this.#log, record, target, end);
  }
}

/**
 * Whether nothing more may come on the connection. Where a request ends that could not be read, and whether a body
 * follows that was not asked for, is anybody's guess: what comes next could be the smuggled part of it.
 */
function isLast({ res, expectsContinue }: ClientExchange, { code }: GatewayError, ending: boolean): boolean {
  if (res.destroyed || res.headersSent) return false;
  return expectsContinue || ending || code === 'bad-request';
}

/** Tells the client, if there is still a way to: an answer that has begun can only be broken off. */
function fail(
  { res }: ClientExchange,
  error: GatewayError,
  requestId: string,
  close: boolean,
  permit: Permit | undefined,
): void {
  if (res.destroyed) return;
  if (res.headersSent) res.destroy();
  else sendProblem(res, error, requestId, close, permit?.fields);
}
