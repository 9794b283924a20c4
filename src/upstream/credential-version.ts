import { randomBytes } from 'node:crypto';
import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { SingleFlight } from '../base/single-flight.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { NoncePools, PoolUse } from '../challenges/pools.ts';
import { type NoncePolicy, serializeKey } from '../challenges/store.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { chooseFor } from '../digest/authorization.ts';
import { parseChallenges } from '../digest/challenge.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { NO_BODY } from './body.ts';
import type { ConnectionOptions } from './connections.ts';
import { CredentialHealth } from './credential-health.ts';
import { type ProbeOptions, type ProbeResult, probeCredential } from './credential-probe.ts';
import type { DigestClient } from './digest-client.ts';
import { type Egress, egressAddress } from './egress.ts';
import type { ExchangeRequest, ExchangeResult } from './exchange.ts';
import { type ClientCall, Handshake, type Outcome, type Turn } from './handshake.ts';
import { upstreamTooSlow } from './refusals.ts';
import type { AnswerSink } from './sink.ts';
import { enterTraced } from './traced-exchange.ts';
import { trustOf, type UpstreamTls } from './upstream-tls.ts';

/** The longest that requests wait for another one that finds out whether an unknown credential is good. */
const PATIENCE_MS = 10_000;

/** How a nonce is renewed before it expires: never; or with this request, by default a HEAD of what worked last. */
export type RenewAhead = boolean | { readonly method: string; readonly path: string };

/** What the versions of all credentials of a deployment have in common. */
export interface VersionOptions {
  readonly deployment: string;
  readonly origin: string;
  readonly egress: Egress;
  readonly tls: UpstreamTls;
  readonly algorithms: readonly AlgorithmName[];
  /** How nonces are used; `auto`: learned. */
  readonly noncePolicy: NoncePolicy | 'auto';
  readonly renewAhead: RenewAhead;
  readonly timeouts: ConnectionOptions['timeouts'];
}

export interface VersionExternals {
  readonly pools: NoncePools;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
  /** Called after a step of the nonce policy. */
  readonly onPolicyStep: (deployment: string, policy: NoncePolicy, from: NoncePolicy) => void;
  /** Called when nonces turn out to serve only the process that obtained them, or every one again. */
  readonly onCrossProcess: (deployment: string, works: boolean) => void;
  /** Told when a version comes to be refused, and when it is accepted again. */
  readonly onStanding: (news: CredentialNews) => void;
  readonly exchange: (request: ExchangeRequest, sink: AnswerSink) => Promise<ExchangeResult>;
}

/** What the upstream makes of a version now. */
export interface CredentialNews {
  readonly deployment: string;
  readonly credential: string;
  readonly version: string;
  readonly refused: boolean;
}

/** What decides which version is used. */
export interface VersionOwner {
  isInUse(version: CredentialVersion): boolean;
  /** True if another version can take the place of this one. */
  hasAlternatives(version: CredentialVersion): boolean;
  /** Begins to find out whether the upstream still takes it, for a request to this target that got a 401. */
  confirm(version: CredentialVersion, target: string): void;
  /** The upstream accepted it; with the status of the response. */
  accepted(version: CredentialVersion, status: number): void;
  /** The upstream refused it with a fresh nonce, although it had accepted it; still to be confirmed. */
  unconfirmed(): void;
  /** The upstream refused it, which it had not done before or not since it accepted it. */
  refused(version: CredentialVersion): void;
}

/** One version of a credential at one upstream: its nonces, and whether the upstream takes it. */
export class CredentialVersion {
  readonly version: string;
  readonly health = new CredentialHealth();
  readonly flights = new SingleFlight();
  readonly pool: NoncePool;
  readonly #use: PoolUse;
  readonly #options: VersionOptions;
  readonly #owner: VersionOwner;
  readonly #client: DigestClient;
  readonly #tracing: Tracing | undefined;
  readonly #onHealth: (refused: boolean) => void;
  /** The path of the last GET that succeeded, without its query. */
  #lastPath: string | undefined;
  #refusalTold = false;
  /** True while a nonce is being renewed. */
  #renewing = false;

  constructor(
    credential: Credential,
    options: VersionOptions,
    externals: VersionExternals,
    owner: VersionOwner,
  ) {
    const { deployment, origin, egress } = options;
    const { clock, pools } = externals;
    this.version = credential.version;
    this.#options = options;
    this.#owner = owner;
    this.#use = pools.use({
      key: serializeKey({
        deployment,
        origin,
        credential: credential.name,
        credentialVersion: credential.version,
        egressAddress: egressAddress(egress),
        trust: trustOf(options.tls),
      }),
      credential,
      algorithms: options.algorithms,
      clock,
      wallTime: Date.now,
      newCnonce: () => randomBytes(16).toString('hex'),
      random: Math.random,
      policy: options.noncePolicy,
      onStep: (policy, from) => externals.onPolicyStep(deployment, policy, from),
      onCrossProcess: (works) => externals.onCrossProcess(deployment, works),
      renew: options.renewAhead === false ? undefined : (nonce) => this.#renewAhead(nonce),
    });
    this.pool = this.#use.pool;
    this.#tracing = externals.tracing;
    this.#onHealth = (refused) =>
      externals.onStanding({
        deployment,
        credential: credential.name,
        version: credential.version,
        refused,
      });
    this.#client = this.#clientFor(credential, externals);
  }

  /** Sends a client request with this version. */
  send(call: ClientCall, turn: Turn): Promise<Outcome> {
    return new Handshake(this.#client, call, turn).run();
  }

  /** Takes over nonces that other processes share, and what was learned about the upstream with another version. */
  restore(former?: CredentialVersion): Promise<void> {
    return this.#use.restore(former?.pool);
  }

  /** No new request uses it; its nonces go to other processes when nobody here uses them any more. */
  close(): Promise<void> {
    return this.#use.end();
  }

  /**
   * Asks the upstream for a challenge and answers it once; twice, the second time on a new connection, if that
   * tells nothing. `target`: of the request that it is for.
   */
  async probe(target: string): Promise<ProbeResult> {
    const options = { replaces: undefined, reason: 'stale', triesEachNonce: true } as const;
    const path = this.#probePath ?? target;
    const first = await this.#probe(path, { ...options, freshConnection: false });
    return first.kind === 'unclear' ? this.#probe(path, { ...options, freshConnection: true }) : first;
  }

  /** The attempt of this number showed that the upstream refuses it. */
  refuse(attempt: number): void {
    if (this.health.refuse(attempt)) this.#tell(true);
  }

  get #probePath(): string | undefined {
    const { renewAhead } = this.#options;
    return typeof renewAhead === 'object' ? renewAhead.path : this.#lastPath;
  }

  async #probe(path: string, options: Omit<ProbeOptions, 'request' | 'cancellation'>): Promise<ProbeResult> {
    const { deployment, renewAhead, timeouts } = this.#options;
    const method = typeof renewAhead === 'object' ? renewAhead.method : 'HEAD';
    const [target = ''] = path.split('?');
    const trace = this.#tracing?.background('challenge', { 'digest_gateway.deployment': deployment });
    const request = { method, target, headers: [], body: NO_BODY, trace };
    const cancellation = new Cancellation();
    const limit = 2 * timeouts.response;
    const timer = setTimeout(() => cancellation.cancel(upstreamTooSlow(limit)), limit);
    try {
      return await probeCredential(this.#client, { ...options, request, cancellation });
    } catch {
      // Counted as an attempt that failed.
      return { kind: 'unclear' };
    } finally {
      clearTimeout(timer);
      trace?.end();
    }
  }

  #tell(refused: boolean): void {
    this.#refusalTold = refused;
    this.#onHealth(refused);
  }

  #clientFor(credential: Credential, { clock, metrics, exchange }: VersionExternals): DigestClient {
    const { deployment, algorithms, timeouts } = this.#options;
    const onAttempt: DigestClient['onAttempt'] = (result) =>
      metrics.upstreamAttempts.inc({ deployment, result });
    return {
      pool: this.pool,
      health: this.health,
      flights: this.flights,
      clock,
      patienceMs: Math.min(PATIENCE_MS, timeouts.response),
      underWay: 0,
      enter: (cancellation, trace) => enterTraced(this.pool, cancellation, trace),
      choose: (lines) => chooseFor(credential, parseChallenges(lines), algorithms),
      exchange: async (request, sink) => {
        sink.attempt(credential);
        try {
          const result = await exchange(request, sink);
          if (result.kind === 'challenged') sink.challenged();
          if (result.kind === 'lost') onAttempt('error');
          return result;
        } catch (error) {
          onAttempt('error');
          throw error;
        }
      },
      hasAlternatives: () => this.#owner.hasAlternatives(this),
      confirm: (target) => this.#owner.confirm(this, target),
      onAttempt,
      onChallenge: (reason, trace) => {
        metrics.challenges.inc({ deployment, reason });
        trace?.event('challenge', { 'digest_gateway.reason': reason });
      },
      onSuccess: (target) => {
        this.#lastPath = target;
      },
      onAccepted: (status) => {
        if (this.#refusalTold) this.#tell(false);
        this.#owner.accepted(this, status);
      },
      onUnconfirmed: () => this.#owner.unconfirmed(),
      onRefused: () => {
        this.#tell(true);
        this.#owner.refused(this);
      },
    };
  }

  async #renewAhead(replaces: Nonce): Promise<void> {
    const path = this.#probePath;
    if (path === undefined || this.#renewing || !this.#owner.isInUse(this)) return;
    if (!this.health.accepted || this.flights.busy) return;
    const options = { replaces, reason: 'ahead', triesEachNonce: false, freshConnection: false } as const;
    this.#renewing = true;
    const { kind } = await this.#probe(path, options);
    this.#renewing = false;
    if (kind !== 'refused' || !this.health.accepted) return;
    this.#owner.unconfirmed();
    if (!this.flights.busy) this.#owner.confirm(this, path);
  }
}
