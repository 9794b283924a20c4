import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Audit } from '../audit/audit.ts';
import type { BufferGc } from '../base/buffer-gc.ts';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, type ErrorCode, GatewayError } from '../base/errors.ts';
import { InFlight } from '../base/in-flight.ts';
import type { Log } from '../base/log.ts';
import { joinedValue } from '../base/raw-headers.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Caller, Identification } from '../identity/identification.ts';
import type { Limits } from '../limits/limits.ts';
import type { DeploymentMetrics } from '../metrics/deployment-metrics.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { decide, type Grant, type Request } from '../policy/decide.ts';
import { type Client, type DeploymentRules, isObserved, unrestricted } from '../policy/rules.ts';
import type { Tracing } from '../tracing/tracing.ts';
import type { BodySource } from '../transport/request-body.ts';
import { ActiveRequest } from '../upstream/client-request.ts';
import { AccessLog, type AccessTarget, UNREADABLE } from './access-log.ts';
import { CLIENT_CLOSED, type ClientExchange } from './client-exchange.ts';
import { sendProblem, sendRawProblem } from './client-response.ts';
import { ClientRefusals, ErrorLog } from './error-log.ts';
import { countDownForwards, outboundHeaders } from './headers.ts';
import { KeysSeen } from './keys-seen.ts';
import { type DataPlane, type Deployment, Relay } from './relay.ts';
import type { RequestHead } from './request-reader.ts';
import {
  auditUnavailable,
  draining,
  logRequest,
  pathOf,
  type RequestEnd,
  RequestRecord,
  requestIdOf,
  resultOf,
} from './request-record.ts';
import {
  checkHost,
  checkMethod,
  checkSite,
  checkUpgrade,
  connectUnsupported,
  hostOf,
  parseTarget,
  type Routes,
  type Target,
} from './routing.ts';

export interface GatewayOptions {
  readonly identification: Identification;
  readonly routes: Routes<Deployment>;
  /** Host names that clients of each listener may use, from `canonicalHost`; undefined: any. */
  readonly hosts: readonly (ReadonlySet<string> | undefined)[];
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
  readonly keysSeen = new KeysSeen();
  readonly #plane: DataPlane;
  readonly #underWay = new InFlight();
  #options: GatewayOptions;
  #refusing = false;

  constructor(options: GatewayOptions, deps: GatewayDeps) {
    const { audit, clock, log, metrics, bufferGc } = deps;
    this.#deps = deps;
    this.#options = options;
    this.accessLog = new AccessLog(log, () => metrics.accessLogLost.inc());
    this.accessLog.configure(options.accessLog);
    this.errors = new ErrorLog(log, clock);
    this.#plane = { bufferGc, audited: audit.enabled, isEnding: false };
  }

  /** Replaces the options for later requests. */
  configure(options: GatewayOptions): void {
    this.#options = options;
    this.accessLog.configure(options.accessLog);
  }

  /** Makes every later response the last one of its connection. */
  endConnections(): void {
    this.#plane.isEnding = true;
  }

  /** Refuses later requests. */
  refuseRequests(): void {
    this.#plane.isEnding = true;
    this.#refusing = true;
  }

  /** Resolves when each request so far is over, recorded, counted and logged. */
  idle(): Promise<void> {
    return this.#underWay.idle();
  }

  /**
   * Handles one request until its response has been sent. `listener`: number of the one that it came to. If it rejects,
   * the connection must be ended.
   */
  async handle(exchange: ClientExchange, listener: number): Promise<void> {
    this.#underWay.enter();
    try {
      const relay = this.#relayOf(exchange);
      let error: GatewayError | undefined;
      try {
        const target = this.#check(relay, listener);
        const identified = this.#options.identification.identify(exchange.socket, exchange.request.headers);
        const caller =
          identified instanceof Promise ? await this.#identifyLater(identified, exchange) : identified;
        const response = await this.#send(relay, target, caller);
        const lines = relay.linesOf(response);
        await relay.record.responded(response);
        // A socket that has ended holds nothing back: all that the upstream sends would count as sent.
        if (exchange.hasLeft) throw exchange.cancellation.reason ?? CLIENT_CLOSED;
        const passing = relay.passOn(response, lines);
        if (passing !== undefined) await passing;
        relay.endUpstream();
      } catch (thrown) {
        relay.endUpstream();
        error = await this.#fail(relay, asGatewayError(thrown));
      } finally {
        const leaving = exchange.left();
        if (leaving !== undefined) await leaving;
        this.#end(relay, error);
      }
    } finally {
      // Also after an error in tracing, whose code can be the operator's: a shutdown would wait for ever.
      this.#underWay.leave();
    }
  }

  #relayOf(exchange: ClientExchange): Relay {
    const { audit, clock, tracing } = this.#deps;
    const { headers, method } = exchange.request;
    const requestId = requestIdOf(joinedValue(headers, 'x-request-id'));
    const trace = tracing?.request(headers, { 'digest_gateway.request_id': requestId });
    const record = new RequestRecord(audit, clock, requestId, method, exchange.address, trace);
    return new Relay(exchange, record, this.#plane);
  }

  /** Checks everything that does not depend on the client. */
  #check({ exchange: { request }, record }: Relay, listener: number): Target {
    // First of all: the record of any other refusal would wait in the backlog of the journal, which has an end.
    if (this.#deps.audit.refusing) throw auditUnavailable();
    if (request.refusal !== undefined) throw request.refusal;
    const host = hostOf(request);
    if (this.#refusing) throw draining();
    if (request.method === 'CONNECT') throw connectUnsupported();
    const target = parseTarget(request.target, host);
    record.target = target.path;
    checkMethod(request);
    checkUpgrade(request);
    checkHost(this.#options.hosts[listener], target);
    return target;
  }

  /** Identifies anew what a reload has overtaken: the client that was found may have been removed. */
  async #identifyLater(identified: Promise<Caller>, { socket, request }: ClientExchange): Promise<Caller> {
    let { identification } = this.#options;
    let caller = await identified;
    while (identification !== this.#options.identification) {
      ({ identification } = this.#options);
      caller = await identification.identify(socket, request.headers);
    }
    return caller;
  }

  /** Finds the deployment, decides, and sends the request to its upstream. */
  #send(relay: Relay, target: Target, caller: Caller): Promise<UpstreamResponse> {
    const { exchange, record } = relay;
    const { request } = exchange;
    const { client, key, address, ambient, refusal } = caller;
    record.client = client.id;
    record.key = key;
    record.address = address;
    if (refusal !== undefined) throw refusal;
    if (ambient) checkSite(request, target, exchange, this.#options.identification);
    const found = this.#options.routes.find(target);
    record.deployment = found.name;
    exchange.pace = found.pace;
    relay.filter = found.responseFilter;
    const grant = this.#decide(found, request, target.path, client, record);
    relay.permit = this.#deps.limits.take(client.id, found.name);
    relay.admittedTo = found;
    const { metrics, upstream } = found;
    metrics.requestsInFlight.inc();
    const body = request.body === 0 ? undefined : this.#bodyOf(exchange, record, metrics);
    relay.sent = new ActiveRequest(record, grant, body, relay, exchange.cancellation, upstream.retries);
    return upstream.send(relay.sent, grant.credential);
  }

  #decide(
    { name, rules, upstream }: Deployment,
    request: RequestHead,
    target: string,
    client: Client,
    record: RequestRecord,
  ): Grant {
    const { method } = request;
    const keepTrace = record.trace === undefined && upstream.options.forwardTrace;
    const headers = outboundHeaders(request.headers, request.httpVersion, keepTrace);
    if (method === 'OPTIONS') countDownForwards(headers);
    const grant = this.#grant(
      rules,
      client,
      { method, target, headers, hasBody: request.body !== 0 },
      record,
    );
    const dropped = (headers.length - grant.headers.length) / 2;
    if (dropped > 0) {
      this.#deps.metrics.requestFieldsDropped.inc({ deployment: name, client: client.id }, dropped);
    }
    record.site = grant.site;
    record.operation = grant.operation;
    record.credentialRule = grant.credentialRule;
    return grant;
  }

  /** Decides by the client's rules. What they refuse while they are only observed is recorded and granted. */
  #grant(rules: DeploymentRules, client: Client, request: Request, record: RequestRecord): Grant {
    const now = Date.now();
    try {
      return decide(rules, client, request, now);
    } catch (refusal) {
      if (!(refusal instanceof GatewayError) || !isObserved(client, now)) throw refusal;
      const grant = decide(rules, unrestricted(client), request, now);
      record.wouldRefuse = refusal.code;
      this.#deps.metrics.wouldRefuse.inc({ client: client.id, code: refusal.code });
      this.refusals.add(
        { client: client.id, deployment: rules.deployment, isServed: true },
        refusal,
        record.requestId,
      );
      return grant;
    }
  }

  /** Sends an error to the client, once it has its record. Resolves to the error that was sent. */
  async #fail({ exchange, record, permit }: Relay, failure: GatewayError): Promise<GatewayError> {
    // The connection is closed for further requests before the record is written, so that none is read meanwhile.
    endIfLast(exchange, failure, this.#plane.isEnding, record.client !== '');
    if (record.target === '') record.target = pathOf(exchange.request.target);
    const error = await this.#recordFailure(failure, record);
    if (error.code === 'internal-error') this.#deps.metrics.internalErrors.inc();
    this.errors.add(record.deployment, error, record.requestId);
    const { client, deployment } = record;
    this.refusals.add({ client, deployment, isServed: false }, error, record.requestId);
    const { socket, response } = exchange;
    if (socket.destroyed) return error;
    // A response that has begun can only be aborted.
    if (response.status !== 0) exchange.breakOff();
    else sendProblem(response, error, record.requestId, permit?.lines);
    return error;
  }

  /** Returns the reason why a response was not sent completely. */
  #unsent({ cancellation }: ClientExchange, record: RequestRecord): GatewayError {
    const error = cancellation.reason ?? CLIENT_CLOSED;
    this.errors.add(record.deployment, error, record.requestId);
    return error;
  }

  /** Records, counts and refuses a message that cannot be handled as a request, and ends its connection. */
  async refuse(refusal: GatewayError, socket: Socket, address: string): Promise<void> {
    const { audit, clock, log, metrics } = this.#deps;
    const record = new RequestRecord(audit, clock, randomUUID(), '', address);
    this.#underWay.enter();
    try {
      const error = await this.#recordFailure(audit.refusing ? auditUnavailable() : refusal, record);
      const { code, kind } = error;
      const series = metrics.deployment('');
      series.requestResults[resultOf(error, '')].inc();
      series.operation('').requests('', kind.status, code).inc();
      const bytes = sendRawProblem(socket, error, record.requestId);
      series.responseBytes.inc(bytes);
      const end = { status: kind.status, code, durationMs: clock.now() - record.begun, bytes };
      if (this.#options.logRequests) logRequest(log, record, '', end);
      this.accessLog.add({ ...UNREADABLE, address, status: kind.status, bytes });
    } finally {
      this.#underWay.leave();
    }
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

  /** The response has left, or never will: counts, records, traces and logs the outcome of the request. */
  #end({ exchange, record, permit, admittedTo }: Relay, failure: GatewayError | undefined): void {
    permit?.release();
    admittedTo?.metrics.requestsInFlight.inc(-1);
    const error = failure ?? (exchange.response.isFinished ? undefined : this.#unsent(exchange, record));
    const { status: written } = exchange.response;
    // A client that has gone gets no status; one that leaves later has got another one than its request counts with.
    const isUnanswered =
      error !== undefined && (written === 0 || error.kind.status === CLIENT_CLOSED.kind.status);
    const end = {
      status: isUnanswered ? error.kind.status : written,
      code: error?.code ?? '',
      durationMs: this.#deps.clock.now() - record.begun,
      bytes: record.bytesOut + exchange.response.problemBytes,
    };
    const series = admittedTo?.metrics ?? this.#deps.metrics.deployment(record.deployment);
    const operation = series.operation(record.operation);
    operation.requests(record.client, end.status, end.code).inc();
    series.requestResults[resultOf(error, record.deployment)].inc();
    if (record.client !== '') this.#deps.metrics.clientLastSeen.happened(record.client);
    if (record.key !== '') this.keysSeen.happened(record.client, record.key);
    operation.duration.observe(end.durationMs / 1000, record.trace?.traceId, record.requestId);
    series.responseBytes.inc(end.bytes);
    if (record.outcome !== '') series.outcome(record.outcome).inc();
    record.ended(end.status, end.code, end.durationMs);
    const { logRequests, accessLog } = this.#options;
    if (logRequests || accessLog !== undefined) this.#log(record, exchange.request, end);
  }

  #log(record: RequestRecord, request: RequestHead, end: RequestEnd): void {
    const { status, bytes } = end;
    const path = pathOf(request.target);
    if (this.#options.logRequests) logRequest(this.#deps.log, record, path, end);
    if (this.#options.accessLog === undefined) return;
    const { address, client, method } = record;
    const { httpVersion, headers } = request;
    const referer = joinedValue(headers, 'referer');
    const userAgent = joinedValue(headers, 'user-agent');
    this.accessLog.add({ address, client, method, path, httpVersion, status, bytes, referer, userAgent });
  }
}

/**
 * After a malformed request the start of the next one is uncertain: the next bytes could be a smuggled request. RFC 9110
 * §15.5.9 asks for it after a timeout; what follows CONNECT is for the tunnel.
 */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'bad-request',
  'headers-too-large',
  'not-implemented',
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
  if (socket.destroyed || response.status !== 0) return;
  if (request.expectsContinue || ending || ENDS_CONNECTION.has(code)) exchange.endConnection();
  if (!isKnown) exchange.refuseChunks();
}
