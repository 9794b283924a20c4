import { randomBytes } from 'node:crypto';
import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { expectGatewayError } from '../base/expected-errors.ts';
import type { SingleFlight } from '../base/single-flight.ts';
import type { Nonce, NonceCounters } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { NoncePools, PoolUse } from '../challenges/pools.ts';
import { type NoncePolicy, serializeKey } from '../challenges/store/store.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import type { CredentialHealth } from '../handshake/credential-health.ts';
import {
  type ProbeOptions,
  type ProbeResult,
  probeCredential,
  UNCLEAR,
} from '../handshake/credential-probe.ts';
import { DigestClient, type DigestListener, DigestState } from '../handshake/digest-client.ts';
import type { Exchange } from '../handshake/exchange.ts';
import { NO_BODY } from '../handshake/request.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import { type Call, type Outcome, sendAuthenticated, type Turn } from '../handshake/send-authenticated.ts';
import type { AttemptResult, ChallengeReason, Metrics } from '../metrics/metrics.ts';
import type { Tracing } from '../tracing/tracing.ts';
import type { ConnectionOptions } from '../transport/connections.ts';
import { type Egress, egressAddress } from '../transport/egress.ts';
import { trustOf, type UpstreamTls } from '../transport/upstream-tls.ts';
import { upstreamTooSlow } from './errors.ts';
import type { CredentialNews } from './rotation.ts';
import type { VersionOwner } from './version-owner.ts';

/** The longest that requests wait for another one that finds out whether an unknown credential is good. */
const PATIENCE_MS = 10_000;
/** Between two notes for other processes that the upstream accepts a version, in milliseconds. */
const NOTE_EVERY_MS = 3_000;

/** Renewal of nonces before they expire: false: none; true: with a HEAD of the last target that succeeded; or with this request. */
export type RenewAhead = boolean | { readonly method: string; readonly path: string };

/** Options of a deployment that hold for every version of its credentials. */
export interface VersionOptions {
  readonly deployment: string;
  readonly origin: string;
  readonly egress: Egress;
  readonly tls: UpstreamTls;
  readonly algorithms: readonly AlgorithmName[];
  /** Reuse policy; `auto`: learned. */
  readonly noncePolicy: NoncePolicy | 'auto';
  readonly renewAhead: RenewAhead;
  /** Target of the gateway's own requests while none is known that succeeded. */
  readonly neutralTarget: string;
  readonly timeouts: ConnectionOptions['timeouts'];
  readonly forwardTrace: boolean;
}

export interface VersionDeps {
  readonly pools: NoncePools;
  /** Of all versions of a credential. */
  readonly counters: NonceCounters;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
  /** Called after a step of the nonce policy. */
  readonly onPolicyStep: (deployment: string, policy: NoncePolicy, from: NoncePolicy) => void;
  /** Called when nonces turn out to serve only the process that obtained them, or every one again. */
  readonly onBound: (deployment: string) => void;
  /** Called when the upstream begins to refuse a version, and when it accepts it again. */
  readonly onHealth: (news: CredentialNews) => void;
}

/** Settings and connections of one upstream. */
export interface Transport {
  readonly options: VersionOptions;
  /** Host and port of the upstream. */
  readonly address: string;
  readonly exchange: Exchange;
}

/** A client request, over the connections of one upstream. */
export interface ClientCall extends Call {
  readonly transport: Transport;
}

/** A version on one transport. */
interface Attachment {
  readonly transport: Transport;
  readonly use: PoolUse;
  readonly client: DigestClient;
}

/**
 * One version of a credential at one upstream: its nonces, and whether the upstream accepts it, which holds for all
 * transports.
 */
export class CredentialVersion implements DigestListener {
  readonly version: string;
  readonly #state = new DigestState();
  readonly #credential: Credential;
  readonly #key: string;
  /**
   * Of the notes that the upstream accepts the credential. Without a version: each gateway numbers them by itself. In a
   * rotation, there are others of the version, under `#key`.
   */
  readonly #noteKey: string;
  readonly #deployment: string;
  readonly #deps: VersionDeps;
  readonly #owner: VersionOwner;
  /** The latest last: it carries the gateway's own requests, since the connections of an earlier one may close. */
  readonly #attachments: Attachment[] = [];
  /** The path of the last GET that succeeded, without its query. */
  #lastPath: string | undefined;
  #refusalReported = false;
  #refusedAt = Number.NEGATIVE_INFINITY;
  /** When it was noted for other processes that the upstream accepts it. */
  #notedAt = Number.NEGATIVE_INFINITY;
  /** True while a nonce is being renewed. */
  #renewing = false;

  constructor(
    credential: Credential,
    { deployment, origin, egress, tls }: Pick<VersionOptions, 'deployment' | 'origin' | 'egress' | 'tls'>,
    deps: VersionDeps,
    owner: VersionOwner,
  ) {
    this.version = credential.version;
    this.#credential = credential;
    this.#deployment = deployment;
    this.#deps = deps;
    this.#owner = owner;
    const key = {
      deployment,
      origin,
      credential: credential.name,
      credentialVersion: credential.version,
      egressAddress: egressAddress(egress),
      trust: trustOf(tls),
    };
    this.#key = serializeKey(key);
    this.#noteKey = serializeKey({ ...key, credentialVersion: '' });
  }

  get health(): CredentialHealth {
    return this.#state.health;
  }

  get flights(): SingleFlight {
    return this.#state.flights;
  }

  /** Requests go out over this transport from now on; those of others may still be under way. */
  attach(transport: Transport): void {
    const { noncePolicy, algorithms, renewAhead } = transport.options;
    const { pools, counters, clock, onPolicyStep, onBound } = this.#deps;
    const use = pools.use({
      key: this.#key,
      credential: this.#credential,
      counters,
      algorithms,
      clock,
      newCnonce: () => randomBytes(16).toString('hex'),
      random: Math.random,
      policy: noncePolicy,
      onStep: (policy, from) => onPolicyStep(this.#deployment, policy, from),
      onBound: () => onBound(this.#deployment),
      renew: renewAhead === false ? undefined : (nonce) => this.#renewAhead(nonce),
    });
    const { timeouts, forwardTrace } = transport.options;
    const client = new DigestClient(
      {
        credential: this.#credential,
        algorithms,
        patienceMs: Math.min(PATIENCE_MS, timeouts.response),
        field: 'authorization',
        address: transport.address,
        tracing: { deployment: this.#deployment, forwardTrace },
      },
      { pool: use.pool, state: this.#state, listener: this, clock },
    );
    this.#attachments.push({ transport, use, client });
  }

  /**
   * No new request goes out over this transport. Resolves when the nonces that nobody here uses are left to other
   * processes.
   */
  async detach(transport: Transport): Promise<void> {
    const at = this.#attachments.findIndex((each) => each.transport === transport);
    const [attachment] = at === -1 ? [] : this.#attachments.splice(at, 1);
    await attachment?.use.end();
  }

  /** The nonces for requests over this transport; undefined: it is not attached. */
  poolOn(transport: Transport): NoncePool | undefined {
    return this.#on(transport)?.client.pool;
  }

  /**
   * Sends a client request with this version.
   * @throws TypeError when the transport of the call is not attached
   */
  send(call: ClientCall, turn: Turn): Promise<Outcome> {
    const attachment = this.#on(call.transport);
    if (attachment === undefined) throw new TypeError(`version ${this.version} has no such transport`);
    return sendAuthenticated(attachment.client, call, turn);
  }

  /** Discards a response that no client gets, and counts the attempt. */
  async discard(response: UpstreamResponse): Promise<void> {
    await response.discard();
    this.onAttempt(response.isWhole ? 'ok' : 'error');
  }

  /** Takes over nonces that other processes share, and what was learned about the upstream with another version. */
  async restore(former?: CredentialVersion): Promise<void> {
    const learned = former === undefined ? undefined : former.#latest?.client.pool;
    await Promise.all(this.#attachments.map(({ use }) => use.restore(learned)));
  }

  /** Drops idle nonces that an upstream has dropped, too: `NoncePool.dropIdle`. */
  dropIdle(): void {
    for (const { client } of this.#attachments) client.pool.dropIdle();
  }

  /**
   * Asks the upstream for a challenge and answers it, at a neutral target: whether it accepts a target of a client says
   * nothing of the credential. If that shows nothing, once more on a new connection with GET, since not every server
   * supports HEAD; if the neutral target wants no authentication, with the path of `target`.
   */
  async probe(target: string): Promise<ProbeResult> {
    const transport = this.#latest?.transport;
    if (transport === undefined) return UNCLEAR;
    const { renewAhead, neutralTarget } = transport.options;
    const options = { replaces: undefined, reason: 'stale', triesEachNonce: true } as const;
    const known = this.#probePath(transport.options);
    const path = known ?? neutralTarget;
    const first = await this.#probe(path, options, false);
    if (first.kind !== 'unclear') return first;
    const method = typeof renewAhead === 'object' ? renewAhead.method : 'GET';
    const second = await this.#probe(path, options, true, method);
    if (second.kind !== 'unclear' || !second.isUnprotected || known !== undefined) return second;
    return this.#probe(target, options, true, method);
  }

  /** The attempt of this number showed that the upstream refuses it. */
  refuse(attempt: number): void {
    if (this.health.refuse(attempt)) this.#tell(true);
  }

  get hasAlternatives(): boolean {
    return this.#owner.hasAlternatives(this);
  }

  get isReplaced(): boolean {
    return this.#owner.isReplaced(this);
  }

  confirm(target: string, refused?: number): void {
    this.#owner.confirm(this, target, refused);
  }

  onAttempt(result: AttemptResult): void {
    this.#deps.metrics.deployment(this.#deployment).upstreamAttempts[result].inc();
  }

  onChallenge(reason: ChallengeReason): void {
    this.#deps.metrics.challenges.inc({ deployment: this.#deployment, reason });
  }

  onSuccess(target: string): void {
    this.#lastPath = target;
  }

  onAccepted(status: number): void {
    const isNews = this.#refusalReported;
    if (isNews) this.#tell(false);
    this.#owner.accepted(this, status);
    this.#noteAccepted(isNews);
  }

  /** Makes it unknown if another process has seen the upstream accept the credential since it was refused here. */
  async resetIfAcceptedSince(): Promise<boolean> {
    if (!(await this.#isNotedSince(this.#noteKey)) || !this.health.refused) return false;
    this.health.reset();
    return true;
  }

  /** True if another process has seen the upstream accept this version since it was refused here. */
  isAcceptedSince(): Promise<boolean> {
    return this.#isNotedSince(this.#key);
  }

  /** True if this process is the one to try it for so long. Without the store, none is. Never rejects. */
  leadTrial(ms: number): Promise<boolean> {
    return this.#deps.pools.lead(`${this.#key} next`, ms);
  }

  async #isNotedSince(key: string): Promise<boolean> {
    const asked = this.#deps.clock.now();
    const ago = await this.#deps.pools.acceptedAgo(key);
    // The answer may come late, so it counts from the question on.
    return typeof ago === 'number' && asked - ago > this.#refusedAt;
  }

  get isInUse(): boolean {
    return this.#owner.isInUse(this);
  }

  onUnconfirmed(): void {
    this.#owner.unconfirmed();
  }

  onRefused(): void {
    this.#tell(true);
    this.#owner.refused(this);
  }

  /** `isNews`: others may think that it is refused. */
  #noteAccepted(isNews: boolean): void {
    const { clock, pools } = this.#deps;
    const now = clock.now();
    if (!isNews && now - this.#notedAt < NOTE_EVERY_MS) return;
    this.#notedAt = now;
    void pools.noteAccepted(this.#noteKey);
    if (this.hasAlternatives) void pools.noteAccepted(this.#key);
  }

  get #latest(): Attachment | undefined {
    return this.#attachments.at(-1);
  }

  #on(transport: Transport): Attachment | undefined {
    return this.#attachments.find((each) => each.transport === transport);
  }

  /** The path that probes use; undefined: none is known. */
  #probePath({ renewAhead }: VersionOptions): string | undefined {
    return typeof renewAhead === 'object' ? renewAhead.path : this.#lastPath;
  }

  async #probe(
    target: string,
    options: Omit<ProbeOptions, 'call' | 'freshConnection'>,
    freshConnection: boolean,
    otherMethod?: string,
  ): Promise<ProbeResult> {
    const latest = this.#latest;
    if (latest === undefined) return UNCLEAR;
    const { client, transport } = latest;
    const { renewAhead, timeouts } = transport.options;
    const method = otherMethod ?? (typeof renewAhead === 'object' ? renewAhead.method : 'HEAD');
    const [path = ''] = target.split('?');
    const trace = this.#deps.tracing?.background('challenge', {
      'digest_gateway.deployment': this.#deployment,
    });
    const request = { method, target: path, headers: [], body: NO_BODY, client: '', trace };
    const cancellation = new Cancellation();
    const limit = 2 * timeouts.response;
    const timer = setTimeout(() => cancellation.cancel(upstreamTooSlow(limit)), limit);
    try {
      const call = { request, cancellation, exchange: transport.exchange };
      return await probeCredential(client, { ...options, call, freshConnection });
    } catch (error) {
      expectGatewayError(error);
      // Counted as an attempt that failed.
      return UNCLEAR;
    } finally {
      clearTimeout(timer);
      trace?.end();
    }
  }

  #tell(refused: boolean): void {
    this.#refusalReported = refused;
    if (refused) this.#refusedAt = this.#deps.clock.now();
    this.#deps.onHealth({
      deployment: this.#deployment,
      credential: this.#credential.name,
      version: this.version,
      refused,
    });
  }

  async #renewAhead(replaces: Nonce): Promise<void> {
    const latest = this.#latest;
    const path = latest && this.#probePath(latest.transport.options);
    if (path === undefined || this.#renewing || !this.#owner.isInUse(this)) return;
    if (!this.health.accepted || this.flights.busy) return;
    const options = { replaces, reason: 'ahead', triesEachNonce: false } as const;
    this.#renewing = true;
    const { kind } = await this.#probe(path, options, false).finally(() => {
      this.#renewing = false;
    });
    if (kind !== 'refused' || !this.health.accepted) return;
    this.#owner.unconfirmed();
    if (!this.flights.busy) this.#owner.confirm(this, path);
  }
}
