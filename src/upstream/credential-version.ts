import { randomBytes } from 'node:crypto';
import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
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
import { type Egress, egressAddress } from './egress.ts';
import type { ExchangeRequest, ExchangeResult } from './exchange.ts';
import { Handshake } from './handshake.ts';
import type { HandshakeParts } from './handshake-parts.ts';
import type { UpstreamRequest } from './signing.ts';
import { type AnswerSink, nowhere } from './sink.ts';
import { Standing } from './standing.ts';
import { enterTraced } from './traced-exchange.ts';
import { trustOf, type UpstreamTls } from './upstream-tls.ts';
import { VerdictGate } from './verdict-gate.ts';

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

/** Whoever decides which version is used. */
export interface VersionOwner {
  isInUse(version: CredentialVersion): boolean;
  /** The upstream accepted it; with the status of the answer. */
  accepted(version: CredentialVersion, status: number): void;
  /** The upstream refused it, which it had not done before or not since it accepted it. */
  refused(version: CredentialVersion): void;
}

/** One version of a credential at one upstream: its nonces, and what the upstream has made of it. */
export class CredentialVersion {
  readonly version: string;
  readonly standing = new Standing();
  readonly pool: NoncePool;
  readonly #use: PoolUse;
  readonly #options: VersionOptions;
  readonly #owner: VersionOwner;
  readonly #parts: HandshakeParts;
  readonly #tracing: Tracing | undefined;
  /** The path of the last GET that succeeded, without its query. */
  #lastPath: string | undefined;
  #refusalTold = false;

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
    this.#parts = this.#partsFor(credential, externals);
  }

  /** A request that is to go out with this version. `trial`: even if it is known to be refused. */
  handshake(
    request: UpstreamRequest,
    sink: AnswerSink,
    cancellation: Cancellation,
    trial = false,
  ): Handshake {
    return new Handshake(this.#parts, request, sink, cancellation, trial);
  }

  /** Takes over nonces that other processes share, and what was learned about the upstream with another version. */
  restore(former?: CredentialVersion): Promise<void> {
    return this.#use.restore(former?.pool);
  }

  /** No new request uses it; its nonces go to other processes when nobody here uses them any more. */
  close(): Promise<void> {
    return this.#use.end();
  }

  #partsFor(
    credential: Credential,
    { clock, metrics, exchange, onStanding }: VersionExternals,
  ): HandshakeParts {
    const { deployment, algorithms } = this.#options;
    const onAttempt: HandshakeParts['onAttempt'] = (result) =>
      metrics.upstreamAttempts.inc({ deployment, result });
    const tell = (refused: boolean): void => {
      this.#refusalTold = refused;
      onStanding({ deployment, credential: credential.name, version: credential.version, refused });
    };
    return {
      pool: this.pool,
      enter: (cancellation, trace) => enterTraced(this.pool, cancellation, trace),
      standing: this.standing,
      gate: new VerdictGate(),
      clock,
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
      onAttempt,
      onChallenge: (reason, trace) => {
        metrics.challenges.inc({ deployment, reason });
        trace?.event('challenge', { 'digest_gateway.reason': reason });
      },
      onSuccess: (target) => {
        this.#lastPath = target;
      },
      onAccepted: (status) => {
        if (this.#refusalTold) tell(false);
        this.#owner.accepted(this, status);
      },
      onRefused: () => {
        tell(true);
        this.#owner.refused(this);
      },
    };
  }

  async #renewAhead(replaced: Nonce): Promise<void> {
    const { renewAhead } = this.#options;
    const chosen = typeof renewAhead === 'object' ? renewAhead : { method: 'HEAD', path: this.#lastPath };
    if (chosen.path === undefined || !this.#owner.isInUse(this)) return;
    const [target = ''] = chosen.path.split('?');
    const { deployment } = this.#options;
    const trace = this.#tracing?.background('challenge', { 'digest_gateway.deployment': deployment });
    const request = { method: chosen.method, target, headers: [], body: NO_BODY, trace };
    try {
      await this.handshake(request, nowhere, new Cancellation()).renew(replaced);
    } catch {
      // Counted as an attempt that failed; the nonce in use serves until the upstream refuses it.
    } finally {
      trace?.end();
    }
  }
}
