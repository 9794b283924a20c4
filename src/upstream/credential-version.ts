import { randomBytes } from 'node:crypto';
import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { expectGatewayError } from '../base/expected-errors.ts';
import { getOrInsert } from '../base/maps.ts';
import type { Nonce, NonceCounters } from '../challenges/nonce.ts';
import type { PendingChallenge } from '../challenges/pending-challenges.ts';
import { NoncePool } from '../challenges/pool.ts';
import { SharedChallenges } from '../challenges/shared-challenges.ts';
import type { ChallengeStore, NoncePolicy } from '../challenges/store/store.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import {
  type Account,
  anotherNonce,
  chooseChallenge,
  discard,
  type HandshakeMetrics,
  isChallenge,
  sendMessage,
  takeChallenge,
  unsigned,
} from '../handshake/account.ts';
import { AttemptBudget, type Retries } from '../handshake/attempt-budget.ts';
import { CredentialHealth, METHOD_REFUSED, SAYS_NOTHING } from '../handshake/credential-health.ts';
import { type Exchange, NO_BODY, type UpstreamRequest } from '../handshake/exchange.ts';
import type { FlightRecorder, RecordedCredential } from '../handshake/flight-recorder.ts';
import { type HandshakeOptions, handshake, type Refused } from '../handshake/handshake.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { type Egress, egressAddress } from '../transport/egress.ts';
import { trustOf, type UpstreamTls } from '../transport/upstream-tls.ts';

/**
 * Renewal of nonces before they expire: false: none; true: with a HEAD of the last protected target that succeeded; or
 * with this request.
 */
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
  /** Target of the gateway's own requests while none is known that succeeded. A reload may replace it. */
  neutralTarget: string;
  /** Milliseconds. */
  readonly timeouts: {
    /** The longest that one response may take. */
    readonly response: number;
  };
  readonly forwardTrace: boolean;
}

/** The upstream and the way to it that a version belongs to: over another way it has other nonces. */
export type VersionIdentity = Pick<VersionOptions, 'deployment' | 'origin' | 'egress' | 'tls'>;

/** Settings and connections of one upstream. */
export interface Transport {
  readonly options: VersionOptions;
  /** Host and port of the upstream. */
  readonly address: string;
  readonly exchange: Exchange;
  readonly metrics: HandshakeMetrics;
}

export interface VersionDeps {
  readonly store: ChallengeStore;
  /** Of all versions of a credential. */
  readonly counters: NonceCounters;
  readonly clock: Clock;
  readonly tracing: Tracing | undefined;
  readonly recorder: FlightRecorder;
  readonly recorded: RecordedCredential;
  /** Called after a step of the nonce policy. */
  readonly onPolicyStep: (deployment: string, policy: NoncePolicy, from: NoncePolicy) => void;
  /** Called when nonces turn out to serve only the process that obtained them, or every one again. */
  readonly onBound: (deployment: string) => void;
}

/** A request of the gateway's own that shows whether the upstream accepts a version. */
export interface Question {
  readonly method: string;
  readonly target: string;
  readonly cancellation: Cancellation;
  /** How its challenge is obtained. */
  readonly options?: HandshakeOptions;
}

/** A refusal whose challenge can be answered, with the request that got it. */
export interface InHand extends Pick<Question, 'method' | 'target'> {
  readonly response: UpstreamResponse;
}

export type Reply =
  /** The upstream accepted an answer to a challenge of its own. */
  | { readonly kind: 'accepted'; readonly status: number }
  /** It refused it; with its number, that of the attempts, and the last refusal, if its challenge can be answered. */
  | {
      readonly kind: 'refused';
      readonly attempt: number;
      readonly attempts: number;
      readonly inHand: InHand | undefined;
    }
  /**
   * Nothing is known: the connection broke, the nonce was stale at once, or the response says nothing; its status is 0 if
   * none came. `isUnprotected`: the upstream asked for no authentication.
   */
  | { readonly kind: 'unclear'; readonly status: number; readonly isUnprotected: boolean };

const UNCLEAR: Reply = { kind: 'unclear', status: 0, isUnprotected: false };

const NO_RETRIES: Retries = { attempts: 0, take: (reason) => reason === 'stale_connection', count() {} };

/** Asks the upstream for a nonce of this version that takes the place of this one. */
export type Renew = (version: CredentialVersion, nonce: Nonce) => Promise<void>;

/** One version of a credential at one upstream: its nonces, its health, and questions whether the upstream accepts it. */
export class CredentialVersion {
  readonly version: string;
  readonly health = new CredentialHealth();
  /** From `keyOf`. */
  readonly key: string;
  /** When the upstream was last found to refuse it. */
  refusedAt = Number.NEGATIVE_INFINITY;
  /** True if that was reported, and not that the upstream accepts it again. */
  isRefusalReported = false;
  readonly #credential: Credential;
  readonly #deps: VersionDeps;
  readonly #renew: Renew;
  /** The latest last: it carries the gateway's own requests, since the connections of an earlier one may close. */
  readonly #accounts = new Map<Transport, Account>();
  /** By the settings on which they depend: transports that have the same share one. */
  readonly #pools = new Map<string, NoncePool>();
  readonly #restored = new WeakMap<NoncePool, Promise<void>>();

  constructor(credential: Credential, identity: VersionIdentity, deps: VersionDeps, renew: Renew) {
    this.version = credential.version;
    this.#credential = credential;
    this.#deps = deps;
    this.#renew = renew;
    this.key = keyOf(identity, credential.name, credential.version);
  }

  /** Requests go out over this transport from now on. */
  attach(transport: Transport): void {
    const { address, exchange, options, metrics } = transport;
    const { deployment, algorithms, noncePolicy, renewAhead, forwardTrace } = options;
    const { clock, recorder, recorded } = this.#deps;
    const settings = JSON.stringify([noncePolicy, algorithms, renewAhead !== false]);
    this.#accounts.set(transport, {
      credential: this.#credential,
      pool: getOrInsert(this.#pools, settings, () => this.#openPool(options)),
      health: this.health,
      clock,
      algorithms,
      field: 'authorization',
      address,
      exchange,
      metrics,
      deployment,
      forwardTrace,
      recorder,
      recorded,
    });
  }

  /**
   * No new request goes out over this transport. Resolves when the nonces that nobody here uses are left to other
   * processes.
   */
  async detach(transport: Transport): Promise<void> {
    const left = this.#accounts.get(transport)?.pool;
    this.#accounts.delete(transport);
    const isUsed = Array.from(this.#accounts.values()).some(({ pool }) => pool === left);
    if (left === undefined || isUsed) return;
    // Before the wait: a transport that comes meanwhile gets a pool of its own.
    for (const [settings, pool] of this.#pools) if (pool === left) this.#pools.delete(settings);
    const isLast = this.#accounts.size === 0;
    await left.handOver(!isLast);
    if (this.#accounts.size === 0) this.#deps.store.release(this.key);
  }

  /** For handshakes over this transport. @throws TypeError when it is not attached */
  on(transport: Transport): Account {
    const account = this.#accounts.get(transport);
    if (account === undefined) throw new TypeError(`version ${this.version} has no such transport`);
    return account;
  }

  /** Takes over nonces that other processes share, and what was learned about the upstream with another version. */
  async restore(former?: CredentialVersion): Promise<void> {
    const learned = former === undefined ? undefined : former.#latest?.pool;
    const restore = (pool: NoncePool) => getOrInsert(this.#restored, pool, () => pool.restore(learned));
    await Promise.all(Array.from(this.#pools.values(), restore));
  }

  /** Looks up what another process learned or shared: `NoncePool.adopt`. */
  adopt(): void {
    for (const pool of this.#pools.values()) void pool.adopt();
  }

  /** Drops idle nonces that the upstream has dropped, too: `NoncePool.dropIdle`. */
  dropIdle(): void {
    for (const pool of this.#pools.values()) pool.dropIdle();
  }

  /**
   * Asks the upstream for a challenge and answers it once. A nonce that is accepted serves client requests from then
   * on. A refusal that names the very nonce that it refuses proves nothing, since some servers give one nonce to all who
   * ask within a second: then the next nonce is answered, too.
   */
  async ask(question: Question): Promise<Reply> {
    const account = this.#latest;
    if (account === undefined) return UNCLEAR;
    const trace = this.#background(account);
    try {
      const first = await answerOnce(account, question, trace, question.options);
      if (!isRefusal(first)) return first;
      const { isNamedAgain, attempt } = first;
      if (!isNamedAgain) return refusalOf(first, question, 1);
      const request = requestOf(question, trace);
      const asked = await anotherNonce(
        attempt.nonce.challenge.nonce,
        () => askAlone(account, request),
        (each) => chooseChallenge(account, each)?.nonce,
      );
      if (!isChallenge(account, asked)) return await replyOf(account, asked, request);
      const second = await answerOnce(account, question, trace, { challenge: asked });
      if (!isRefusal(second)) return second;
      return refusalOf(second, question, 2);
    } catch (error) {
      expectGatewayError(error);
      // Counted as an attempt that failed.
      return UNCLEAR;
    } finally {
      trace?.end();
    }
  }

  /**
   * Obtains a nonce that takes the place of this one. One without a count is not tried: see `NoncePool.acceptUntried`.
   */
  async renew(replaces: Nonce, question: Question): Promise<Reply> {
    const account = this.#latest;
    if (account === undefined) return UNCLEAR;
    const trace = this.#background(account);
    const pending: PendingChallenge = account.pool.open(replaces);
    try {
      const asked = await askAlone(account, requestOf(question, trace));
      // Unread, its body would keep the connection for ever.
      if (!isChallenge(account, asked)) await discard(account, asked);
      const challenge = isChallenge(account, asked) ? chooseChallenge(account, asked) : undefined;
      if (challenge === undefined) return UNCLEAR;
      const nonce = takeChallenge(account, pending, challenge, asked, { reason: 'ahead', trace });
      if (!nonce.shareable)
        return await this.ask({ ...question, options: { nonce, pending, challenge: asked } });
      account.pool.acceptUntried(pending);
      return { kind: 'accepted', status: asked.status };
    } catch (error) {
      expectGatewayError(error);
      return UNCLEAR;
    } finally {
      account.pool.close(pending);
      trace?.end();
    }
  }

  get #latest(): Account | undefined {
    return [...this.#accounts.values()].at(-1);
  }

  #background({ deployment }: Account) {
    return this.#deps.tracing?.background('challenge', { 'digest_gateway.deployment': deployment });
  }

  #openPool({ deployment, algorithms, noncePolicy, renewAhead }: VersionOptions): NoncePool {
    const { store, counters, clock, recorder, recorded, onPolicyStep, onBound } = this.#deps;
    return new NoncePool({
      sharedChallenges: new SharedChallenges({
        key: this.key,
        store,
        onTaken: (taken) => recorder.taken(recorded, taken),
      }),
      credential: this.#credential,
      counters,
      algorithms,
      clock,
      newCnonce: () => randomBytes(16).toString('hex'),
      random: Math.random,
      policy: noncePolicy,
      onStep: (policy, from) => onPolicyStep(deployment, policy, from),
      onBound: () => onBound(deployment),
      renew: renewAhead === false ? undefined : (nonce) => this.#renew(this, nonce),
    });
  }
}

/**
 * The key of a version in the stores: two that differ in any part never share a nonce. With an empty version: the key of
 * the credential, whichever versions it has.
 */
export function keyOf(
  { deployment, origin, egress, tls }: VersionIdentity,
  credential: string,
  version: string,
): string {
  // JSON is without ambiguity, whatever the parts hold.
  return JSON.stringify([deployment, origin, credential, version, egressAddress(egress), trustOf(tls)]);
}

function requestOf(
  { method, target, cancellation }: Question,
  trace: UpstreamRequest['trace'],
): UpstreamRequest {
  const budget = new AttemptBudget(method, NO_RETRIES, 1);
  return { method, target, headers: [], body: NO_BODY, cancellation, budget, client: '', trace };
}

async function replyOf(
  account: Account,
  response: UpstreamResponse,
  { budget }: UpstreamRequest,
): Promise<Reply> {
  await discard(account, response);
  const { status } = response;
  const isUnprotected = budget.answered === 0;
  const saysNothing = isUnprotected || SAYS_NOTHING.has(status) || METHOD_REFUSED.has(status);
  return saysNothing || !account.health.accepted
    ? { kind: 'unclear', status, isUnprotected }
    : { kind: 'accepted', status };
}

/** Sends the request of a question without an answer. @throws GatewayError when there is no response */
async function askAlone(account: Account, request: UpstreamRequest): Promise<UpstreamResponse> {
  const asked = await sendMessage(account, unsigned(request));
  if (asked.kind === 'lost') throw asked.error;
  if (isChallenge(account, asked)) account.metrics.upstreamAttempts.challenged.inc();
  return asked;
}

/** Asks and answers in one handshake, and returns what that shows, or a refusal that can have two reasons. */
async function answerOnce(
  account: Account,
  question: Question,
  trace: UpstreamRequest['trace'],
  options: HandshakeOptions = {},
): Promise<Reply | Refused> {
  const request = requestOf(question, trace);
  const result = await handshake(account, request, { ...options, verifies: true });
  // No question is interrupted: `verifies`.
  if (result === 'interrupted') return UNCLEAR;
  if (result.kind === 'response') return replyOf(account, result, request);
  return result.isStale ? UNCLEAR : result;
}

/** Returns what a refusal of this request shows of the version. `attempts`: those that were refused. */
export function refusalOf(
  { number, inHand }: Refused,
  { method, target }: Pick<Question, 'method' | 'target'>,
  attempts: number,
): Extract<Reply, { readonly kind: 'refused' }> {
  const asked = inHand && { response: inHand, method, target };
  return { kind: 'refused', attempt: number, attempts, inHand: asked };
}

function isRefusal(result: Reply | Refused): result is Refused {
  return 'isNamedAgain' in result;
}
