import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { SpentBuffers } from '../base/spent-buffers.ts';
import type { Identification } from '../identity/identification.ts';
import type { Limits } from '../limits/limits.ts';
import type { Permit } from '../limits/permit.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { decide, type Grant } from '../policy/decide.ts';
import type { DeploymentRules } from '../policy/rules.ts';
import { asGatewayError } from '../upstream/faults.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { ClientAnswer, type DataPlane } from './client-answer.ts';
import { bodyOf, onClientGone, type Visit } from './client-request.ts';
import { FaultLog } from './fault-log.ts';
import { checkFraming } from './framing.ts';
import { outboundHeaders } from './headers.ts';
import { linger } from './linger.ts';
import { sendProblem } from './problem.ts';
import { requestIdOf } from './request-id.ts';
import type { Routes } from './routes.ts';
import { parseTarget } from './target.ts';

export interface Deployment {
  readonly name: string;
  /** The host name that requests need to come here; undefined: their paths lead here. */
  readonly host: string | undefined;
  readonly rules: DeploymentRules;
  readonly upstream: Upstream;
}

export interface GatewayOptions {
  readonly identification: Identification;
  readonly routes: Routes<Deployment>;
}

export interface GatewayExternals {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly spent: SpentBuffers;
  readonly limits: Limits;
}

/** What metrics tell requests apart by; each is empty while it is not known. */
interface Labels {
  client: string;
  deployment: string;
  operation: string;
}

const CLIENT_CLOSED = new GatewayError('client-closed', 'The client closed the connection.');

/** The data plane: takes a client's request through to its upstream and the answer back. */
export class Gateway {
  readonly #clock: Clock;
  readonly #metrics: Metrics;
  readonly #limits: Limits;
  readonly #faults: FaultLog;
  readonly #plane: DataPlane;
  #options: GatewayOptions;
  #draining = false;

  constructor(options: GatewayOptions, { clock, log, metrics, spent, limits }: GatewayExternals) {
    this.#options = options;
    this.#clock = clock;
    this.#metrics = metrics;
    this.#limits = limits;
    this.#faults = new FaultLog(log, clock);
    this.#plane = { spent, isDraining: () => this.#draining };
  }

  /** New rules for the requests that come from now on. */
  configure(options: GatewayOptions): void {
    this.#options = options;
  }

  /** Refuses the requests that come from now on. */
  drain(): void {
    this.#draining = true;
  }

  /** One request from its head to the end of its answer. Never rejects. */
  async handle(visit: Visit): Promise<void> {
    const { req, res } = visit;
    const begun = this.#clock.now();
    const requestId = requestIdOf(req.headers['x-request-id']);
    const answer = new ClientAnswer(visit, requestId, this.#plane);
    const labels: Labels = { client: '', deployment: '', operation: '' };
    let code = '';
    try {
      checkFraming(req);
      this.#refuseWhileDraining();
      const identified = this.#options.identification.identify(req);
      const { client } = identified instanceof Promise ? await identified : identified;
      labels.client = client.id;
      const { method = '', rawHeaders: headers } = req;
      const target = parseTarget(req.url ?? '', req.headers.host);
      const found = this.#options.routes.find(target);
      labels.deployment = found.name;
      const grant = decide(found.rules, client, { method, target: target.path, headers });
      labels.operation = grant.operation;
      answer.permit = this.#limits.take(client.id, found.name);
      await this.#forward(found, visit, grant, answer);
    } catch (thrown) {
      const error = asGatewayError(thrown);
      code = error.code;
      this.#faults.add(labels.deployment, error, requestId);
      fail(visit, error, requestId, answer.permit);
    } finally {
      answer.permit?.release();
      linger(req);
      this.#count(labels, code, res.statusCode, begun, answer.bytes);
    }
  }

  async #forward(
    { name, upstream }: Deployment,
    visit: Visit,
    { target, credential }: Grant,
    answer: ClientAnswer,
  ): Promise<void> {
    const { req, res, cancellation } = visit;
    const labels = { deployment: name };
    onClientGone(res, () => cancellation.cancel(CLIENT_CLOSED));
    const body = bodyOf(visit, (count) => {
      this.#plane.spent.add(count);
      this.#metrics.requestBytes.inc(labels, count);
    });
    const headers = outboundHeaders(req.rawHeaders, req.httpVersion);
    this.#metrics.requestsInFlight.inc(labels);
    try {
      const request = { method: req.method ?? '', target, headers, body };
      await upstream.send(request, credential, answer, cancellation);
    } finally {
      this.#metrics.requestsInFlight.dec(labels);
    }
  }

  #refuseWhileDraining(): void {
    if (this.#draining) {
      throw new GatewayError('draining', 'This gateway is shutting down. Send the request again.');
    }
  }

  /** Counts a refusal of something that was no request the gateway could handle. */
  countRefusal(error: GatewayError): void {
    const { code, kind } = error;
    const labels = { deployment: '', operation: '', client: '', status: String(kind.status), code };
    this.#metrics.requests.inc(labels);
  }

  #count(labels: Labels, code: string, answered: number, begun: number, bytes: number): void {
    const { requests, requestDuration, responseBytes } = this.#metrics;
    const { deployment, operation } = labels;
    const status = code === CLIENT_CLOSED.code ? CLIENT_CLOSED.kind.status : answered;
    requests.inc({ ...labels, status: String(status), code });
    requestDuration.observe({ deployment, operation }, (this.#clock.now() - begun) / 1000);
    responseBytes.inc({ deployment }, bytes);
  }
}

/** Tells the client, if there is still a way to: an answer that has begun can only be broken off. */
function fail(visit: Visit, error: GatewayError, requestId: string, permit: Permit | undefined): void {
  const { res, expectsContinue } = visit;
  if (res.destroyed) return;
  if (res.headersSent) {
    res.destroy();
    return;
  }
  // Where a request ends that could not be read, and whether a body follows that was not asked for, is
  // anybody's guess: what comes next could be the smuggled part of it.
  const close = expectsContinue || error.code === 'bad-request' || error.code === 'draining';
  if (close) visit.refuseRest();
  sendProblem(res, error, requestId, close, permit?.fields);
}
