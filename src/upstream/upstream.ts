import { randomBytes } from 'node:crypto';
import type { Pool } from 'undici';
import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { NoncePool } from '../challenges/pool.ts';
import { Replicas } from '../challenges/replicas.ts';
import { type ChallengeStore, type NoncePolicy, serializeKey } from '../challenges/store.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { type Credential, chooseFor } from '../digest/authorization.ts';
import { parseChallenges } from '../digest/challenge.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { type BodyLimits, type BodySource, NO_BODY, receiveBody } from './body.ts';
import { type ConnectionOptions, openConnections } from './connections.ts';
import { CredentialCircuit } from './credential-circuit.ts';
import { exchange } from './exchange.ts';
import { Handshake, type HandshakeParts } from './handshake.ts';
import { type AnswerSink, nowhere } from './sink.ts';

/** Requests that may wait for each connection before the gateway says that it is overloaded. */
const QUEUE_PER_CONNECTION = 16;

export interface UpstreamOptions extends ConnectionOptions {
  readonly deployment: string;
  readonly credential: Credential & { readonly name: string; readonly version: string };
  readonly algorithms: readonly AlgorithmName[];
  /** How nonces are used; `auto`: learned. */
  readonly noncePolicy: NoncePolicy | 'auto';
  readonly renewAhead: RenewAhead;
  readonly body: BodyLimits;
  /** The longest that one client request may take here, in milliseconds. */
  readonly totalTimeout: number;
}

/** A client's request as it is to reach the upstream. */
export interface ClientRequest {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** Flat list: name, value, name, value … */
  readonly headers: readonly string[];
  /** Undefined: the request has no body. */
  readonly body: BodySource | undefined;
}

/** How a nonce is renewed before it expires: never; or with this request, by default a HEAD of what worked last. */
export type RenewAhead = boolean | { readonly method: string; readonly path: string };

export interface UpstreamExternals {
  readonly store: ChallengeStore;
  readonly clock: Clock;
  readonly metrics: Metrics;
  /** Told of a step of a deployment's nonce policy. */
  readonly onPolicyStep: (deployment: string, policy: NoncePolicy) => void;
  /** Told that a deployment's nonces serve only the process that obtained them. */
  readonly onNoncesApart: (deployment: string) => void;
}

/** One deployment's upstream: its connections, nonces and credential. */
export class Upstream {
  readonly #options: UpstreamOptions;
  readonly #metrics: Metrics;
  readonly #clock: Clock;
  readonly #connections: Pool;
  readonly #nonces: NoncePool;
  readonly #circuit: CredentialCircuit;
  readonly #parts: HandshakeParts;
  /** From `serializeKey`: what its challenges are shared under. */
  readonly key: string;
  /** The path of the last GET that succeeded, without its query. */
  #lastPath: string | undefined;
  #inFlight = 0;
  #onIdle: (() => void) | undefined;

  constructor(options: UpstreamOptions, externals: UpstreamExternals) {
    const { deployment, credential } = options;
    const { metrics } = externals;
    this.#options = options;
    this.#metrics = metrics;
    this.#clock = externals.clock;
    this.#connections = openConnections(options);
    this.#circuit = new CredentialCircuit(externals.clock);
    this.key = serializeKey({
      deployment,
      origin: options.origin,
      credential: credential.name,
      credentialVersion: credential.version,
      egressAddress: '',
    });
    this.#nonces = new NoncePool({
      replicas: new Replicas({ key: this.key, store: externals.store }),
      credential,
      clock: externals.clock,
      wallTime: Date.now,
      newCnonce: () => randomBytes(16).toString('hex'),
      random: Math.random,
      policy: options.noncePolicy,
      onStep: (policy) => externals.onPolicyStep(deployment, policy),
      onApart: () => externals.onNoncesApart(deployment),
      renew: options.renewAhead === false ? undefined : (nonce) => this.#renewAhead(nonce),
    });
    this.#parts = {
      pool: this.#nonces,
      circuit: this.#circuit,
      choose: (lines) => chooseFor(credential, parseChallenges(lines), options.algorithms),
      exchange: (request, sink) => exchange(this.#connections, request, sink),
      onAttempt: (result) => metrics.upstreamAttempts.inc({ deployment, result }),
      onChallenge: (reason) => metrics.challenges.inc({ deployment, reason }),
      onSuccess: (target) => {
        this.#lastPath = target;
      },
    };
  }

  /** Whether the credential was refused and has not been accepted since. */
  get credentialRefused(): boolean {
    return this.#circuit.open;
  }

  /** Age of the nonce in use, in milliseconds; undefined: none is. */
  get nonceAgeMs(): number | undefined {
    const { known } = this.#nonces;
    return known === undefined ? undefined : this.#clock.now() - known.obtainedAt;
  }

  /** How nonces are used here. */
  get noncePolicy(): NoncePolicy {
    return this.#nonces.policy;
  }

  /** How long nonces live here, as far as it was learned, in milliseconds. */
  get nonceLifetimeMs(): number | undefined {
    return this.#nonces.lifetimeMs;
  }

  /** Takes over nonces that other processes share; for the start. */
  restore(): Promise<void> {
    return this.#nonces.restore();
  }

  /** Another process shared a nonce. */
  adopt(): Promise<void> {
    return this.#nonces.adopt();
  }

  /**
   * Sends a client's request, authenticated, and its answer to the sink. Cancelling gives the request up.
   * @throws GatewayError when no answer reached the sink, or when it broke off
   */
  async send(request: ClientRequest, sink: AnswerSink, cancellation: Cancellation): Promise<void> {
    const { deployment, connections, totalTimeout } = this.#options;
    if (this.#inFlight >= connections * (1 + QUEUE_PER_CONNECTION)) throw overloaded();
    let awaitsClient = (): boolean => true;
    const timer = setTimeout(() => {
      cancellation.cancel(awaitsClient() ? clientTooSlow(totalTimeout) : upstreamTooSlow(totalTimeout));
    }, totalTimeout);
    this.#inFlight += 1;
    try {
      const body = await receiveBody(request.body, this.#options.body, cancellation);
      awaitsClient = () => body.kind === 'streamed' && body.progress.awaitsClient;
      const begun = this.#clock.now();
      try {
        await new Handshake(this.#parts, { ...request, body }, sink, cancellation).run();
      } finally {
        this.#metrics.upstreamDuration.observe({ deployment }, (this.#clock.now() - begun) / 1000);
      }
    } finally {
      clearTimeout(timer);
      this.#inFlight -= 1;
      if (this.#inFlight === 0) this.#onIdle?.();
    }
  }

  /** Resolves when the requests under way are done and the connections closed. The caller sends no new ones. */
  async close(): Promise<void> {
    if (this.#inFlight > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    await this.#nonces.park();
    await this.#connections.close();
  }

  async #renewAhead(replaced: Nonce): Promise<void> {
    const { renewAhead } = this.#options;
    const chosen = typeof renewAhead === 'object' ? renewAhead : { method: 'HEAD', path: this.#lastPath };
    if (chosen.path === undefined) return;
    const [target = ''] = chosen.path.split('?');
    const request = { method: chosen.method, target, headers: [], body: NO_BODY };
    try {
      await new Handshake(this.#parts, request, nowhere, new Cancellation()).renew(replaced);
    } catch {
      // Counted as an attempt that failed; the nonce in use serves until the upstream refuses it.
    }
  }
}

function overloaded(): GatewayError {
  return new GatewayError(
    'overloaded',
    'Too many requests wait for this upstream. Try again later; raise connections if the upstream allows more.',
  );
}

function clientTooSlow(totalTimeout: number): GatewayError {
  return new GatewayError(
    'request-timeout',
    `The request's body was not there after ${totalTimeout} ms (timeouts.total).`,
  );
}

function upstreamTooSlow(totalTimeout: number): GatewayError {
  return new GatewayError(
    'upstream-timeout',
    `The request took longer than ${totalTimeout} ms in all (timeouts.total).`,
  );
}
