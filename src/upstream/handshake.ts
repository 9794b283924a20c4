import type { Cancellation } from '../base/cancellation.ts';
import type { Flight, Landing } from '../base/single-flight.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import type { Opening } from '../challenges/handshake-queue.ts';
import { Nonce, type NonceAttempt } from '../challenges/nonce.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { ChallengeReason } from '../metrics/metrics.ts';
import type { AttemptBudget } from './attempt-budget.ts';
import { SAYS_NOTHING } from './credential-health.ts';
import type { Transport } from './credential-version.ts';
import type { DigestClient } from './digest-client.ts';
import type { ExchangeRequest, ExchangeResult } from './exchange.ts';
import { onProvenHead } from './proof.ts';
import { alwaysStale, cannotRepeat, noDigest, refusedAgain } from './refusals.ts';
import { question, signed, type UpstreamRequest, unsigned } from './signing.ts';
import { type AnswerSink, unseen } from './sink.ts';

/** A challenge that is older, in milliseconds, is not answered after a wait: the upstream may have dropped it. */
const FRESH_MS = 100;

/** One client request, with whatever credential it goes out. */
export interface ClientCall {
  readonly request: UpstreamRequest;
  readonly sink: AnswerSink;
  readonly cancellation: Cancellation;
  readonly budget: AttemptBudget;
  /** The same for every credential version that the request tries. */
  readonly transport: Transport;
}

/** How a request uses one version of a credential. */
export interface Turn {
  /** True: each attempt goes out with a nonce that was obtained for it. False: the first may use a known one. */
  readonly ownNonce: boolean;
  /** The most authenticated attempts, within the budget of the request. */
  readonly attempts: number;
  /** True: the version is tried although it counts as refused. */
  readonly whileRefused: boolean;
}

/** `refused`: the version is, so the request goes on with another one. */
export type Outcome = 'answered' | 'refused';

type Challenged = Extract<ExchangeResult, { kind: 'challenged' }>;

/** One authenticated attempt. */
interface Attempt {
  readonly nonce: NonceAttempt;
  /** From `CredentialHealth`. */
  readonly number: number;
  /** True if the nonce was obtained for this request, and no other one has used it. */
  readonly own: boolean;
}

/** What a request does next. */
type Step = { readonly nonce: Nonce | undefined } | { readonly outcome: Outcome };

const ANSWERED: Step = { outcome: 'answered' };
const REFUSED: Step = { outcome: 'refused' };
/** Sends the request without authentication, to be asked for it. */
const ASK: Step = { nonce: undefined };

/** One client request with one version of a credential, in as many exchanges as its authentication takes. */
export class Handshake {
  readonly #client: DigestClient;
  readonly #call: ClientCall;
  readonly #turn: Turn;
  readonly #lastAttempt: number;
  /** The challenge that this request obtains; undefined: none yet. */
  #opening: Opening | undefined;
  /** Held while this request finds out whether the credential is good. */
  #flight: Flight | undefined;
  /** True if the upstream asked for no authentication when it was asked for a challenge. */
  #unprotected = false;

  constructor(client: DigestClient, call: ClientCall, turn: Turn) {
    this.#client = client;
    this.#call = call;
    this.#turn = turn;
    this.#lastAttempt = Math.min(call.budget.limit, call.budget.answered + turn.attempts);
  }

  /**
   * Sends the request with a known nonce, or without one to be asked for it, then answers what it is asked.
   * @throws GatewayError when no response reached the sink, or when it broke off
   */
  async run(): Promise<Outcome> {
    const { pool } = this.#client;
    this.#client.clientRequests.underWay += 1;
    try {
      let step = await this.#begin();
      while ('nonce' in step) step = await this.#take(step.nonce);
      return step.outcome;
    } finally {
      this.#client.clientRequests.underWay -= 1;
      this.#land('check');
      if (this.#opening !== undefined) pool.close(this.#opening);
    }
  }

  /** The nonce of the first attempt: a known one, one that another request obtains meanwhile, or none. */
  async #begin(): Promise<Step> {
    const { pool, health, hasAlternatives } = this.#client;
    const { request, budget, cancellation } = this.#call;
    // A body that is not kept can be sent once, so the challenge is asked for first.
    if (request.body.kind === 'streamed' && !this.#unprotected) return ASK;
    if (this.#turn.ownNonce || budget.answered > 0) return ASK;
    // A known nonce may cost an attempt, and one is left then: too few to try two versions.
    const nonce = health.accepted || !hasAlternatives() ? pool.reserve() : undefined;
    if (nonce !== undefined || this.#opening !== undefined) return { nonce };
    const entry = await this.#client.enter(cancellation, request.trace);
    if (entry instanceof Nonce) return { nonce: entry };
    this.#opening = entry;
    return ASK;
  }

  async #take(nonce: Nonce | undefined): Promise<Step> {
    if (nonce === undefined) return this.#ask();
    const instead = await this.#settle(nonce);
    if (instead !== undefined) return instead;
    const attempt = this.#attemptWith(nonce);
    // It was refused meanwhile, or belongs to another process now.
    if (attempt === undefined) return this.#isOwn(nonce) ? ASK : this.#begin();
    return this.#send(attempt);
  }

  /**
   * Before an authenticated attempt: waits while somebody finds out whether the credential is good, or leads if it
   * is unknown. Resolves to what to do instead of the attempt; undefined: nothing.
   */
  async #settle(nonce: Nonce): Promise<Step | undefined> {
    const { clock, hasAlternatives } = this.#client;
    if (this.#flight !== undefined || this.#turn.whileRefused) return undefined;
    const since = clock.now();
    const passage = await this.#pass();
    if (passage === 'refused') return REFUSED;
    // A nonce of another process, which only expired, would cost the attempt that another version may need.
    if (this.#flight !== undefined && !this.#isOwn(nonce) && hasAlternatives()) return ASK;
    if (passage === 'at-once') return undefined;
    if (!this.#isOwn(nonce)) return this.#begin();
    // An upstream that keeps state by opaque refuses a right answer when others were there first.
    const isGood = nonce.challenge.opaque === undefined && clock.now() - since < FRESH_MS;
    return isGood || !this.#call.budget.mayAsk ? undefined : ASK;
  }

  async #pass(): Promise<'at-once' | 'waited' | 'refused'> {
    const { health, flights, patienceMs } = this.#client;
    for (let passage: 'at-once' | 'waited' = 'at-once'; ; passage = 'waited') {
      if (health.refused) return 'refused';
      if (!flights.busy) {
        if (!health.accepted) this.#flight = flights.lead(patienceMs);
        return passage;
      }
      if ((await this.#follow()) === 'proceed') return 'waited';
    }
  }

  async #follow(): Promise<Landing> {
    const { cancellation } = this.#call;
    const landing = await this.#client.flights.follow(cancellation);
    if (cancellation.reason !== undefined) throw cancellation.reason;
    return landing;
  }

  /** Sends the request without authentication; or, to keep the body, one that does nothing. */
  async #ask(): Promise<Step> {
    const { budget, request, sink } = this.#call;
    if (this.#client.health.refused && !this.#turn.whileRefused) return REFUSED;
    budget.asked += 1;
    const asksFirst = request.body.kind === 'streamed' && !this.#unprotected;
    const result = asksFirst
      ? await this.#exchange(question(request), () => undefined, unseen(sink))
      : await this.#exchange(unsigned(request), () => this.#onUnprotected(), sink);
    if (result.kind === 'lost') return this.#afterLoss(result.error, ASK);
    if (result.kind === 'challenged') return this.#answer(this.#challengeIn(result), result, undefined);
    if (!asksFirst) return ANSWERED;
    this.#unprotected = true;
    return { nonce: this.#client.pool.reserve() };
  }

  async #send(attempt: Attempt): Promise<Step> {
    const { request, sink, budget } = this.#call;
    const { nonce, nc } = attempt.nonce;
    const onHead = onProvenHead(nonce, { uri: request.target, nc }, (status, nextnonce) =>
      this.#onAccepted(attempt, status, nextnonce),
    );
    const result = await this.#exchange(signed(request, nonce, nc), onHead, sink).finally(() =>
      attempt.nonce.end(),
    );
    if (result.kind === 'lost') {
      this.#client.pool.abandon(attempt.nonce);
      return this.#afterLoss(result.error, attempt.own || budget.answered > 0 ? ASK : undefined);
    }
    budget.answered += 1;
    return result.kind === 'challenged' ? this.#judge(attempt, result) : ANSWERED;
  }

  async #exchange(
    message: Pick<ExchangeRequest, 'method' | 'target' | 'headers' | 'body' | 'trace'>,
    onHead: ExchangeRequest['onHead'],
    sink: AnswerSink,
  ): Promise<ExchangeResult> {
    const { budget, cancellation, request } = this.#call;
    const { method, target, headers, body, trace } = message;
    budget.bodySent ||= request.body.kind === 'streamed' && body !== null;
    const freshConnection = budget.repeated;
    const exchanged = { method, target, headers, body, trace, cancellation, freshConnection, onHead };
    const result = await this.#client.exchange(exchanged, sink);
    if (result.kind === 'answered') this.#client.onAttempt('ok');
    return result;
  }

  /**
   * Repeats a request whose connection broke before any response: once, on a new connection. A nonce with a count
   * is not used again, since the upstream may have seen the count or not.
   */
  #afterLoss(error: Error, next: Step | undefined): Step | Promise<Step> {
    const { budget, request } = this.#call;
    if (!budget.mayRepeat(request)) throw error;
    budget.repeated = true;
    return next ?? this.#begin();
  }

  #onUnprotected(): undefined {
    if (this.#opening !== undefined) this.#client.pool.unchallenged(this.#opening);
  }

  #onAccepted(attempt: Attempt, status: number, nextnonce: string | undefined): void {
    const { pool, health, onAccepted, onSuccess } = this.#client;
    const { method, target } = this.#call.request;
    if (SAYS_NOTHING.has(status)) {
      this.#land('proceed');
    } else if (health.accept(attempt.number)) {
      this.#land('check');
      onAccepted(status);
    }
    pool.accept(attempt.nonce, this.#opening, nextnonce);
    if (status < 300 && method === 'GET') onSuccess(target);
  }

  /** Classifies a 401 to an authenticated attempt. */
  async #judge(attempt: Attempt, result: Challenged): Promise<Step> {
    const { pool, choose, clock, isReplaced, onAttempt } = this.#client;
    const { budget } = this.#call;
    const came = clock.now();
    const challenge = choose(result.challenges);
    // RFC 7616 §3.3: stale says that the digest was right.
    const stale = challenge?.stale === true;
    pool.refuse(attempt.nonce, stale);
    onAttempt(!stale && attempt.own ? 'refused' : 'stale');
    budget.onlyStale &&= stale;
    const isLast = budget.answered >= this.#lastAttempt;
    if (!stale && !(await this.#credentialStands(attempt, isLast))) return REFUSED;
    if (isLast && isReplaced()) return REFUSED;
    if (challenge === undefined) throw noDigest();
    if (isLast) throw budget.onlyStale ? alwaysStale() : refusedAgain();
    if (budget.bodySent) throw cannotRepeat();
    const known = stale ? undefined : this.#verifiedNonce(attempt, came);
    if (known !== undefined) return { nonce: known };
    this.#countChallenge();
    // Where a round trip takes long, the upstream may drop this challenge as well before the answer arrives.
    const isGood = stale || this.#flight !== undefined || clock.now() - attempt.nonce.sentAt < FRESH_MS;
    return isGood ? this.#answer(challenge, result, attempt) : ASK;
  }

  /**
   * A 401 that is not called stale may mean the nonce, its count, or the credential. False: it is the credential,
   * as an attempt for that purpose has shown, or another version is in use by now.
   */
  async #credentialStands(attempt: Attempt, isLast: boolean): Promise<boolean> {
    const { health, hasAlternatives, isReplaced, onUnconfirmed } = this.#client;
    if (isReplaced()) return false;
    // A second refusal of a credential that was found good in between says nothing new.
    if (isLast && this.#call.budget.confirmed && !hasAlternatives() && !health.refused) return true;
    if (attempt.own && health.accepted) onUnconfirmed();
    if (!(await this.#isExplained(attempt))) return false;
    return !isLast || !hasAlternatives() || this.#awaitVerdict();
  }

  /** Waits until something else than the credential explains the refusal, or nobody can find out. False: it does. */
  async #isExplained(attempt: Attempt): Promise<boolean> {
    const { health, flights, hasAlternatives, confirm } = this.#client;
    const { request, budget } = this.#call;
    // A later attempt can reach the upstream before this one. Where that would waste the attempt that another version
    // needs, only attempts count that are sent from now on.
    const sent = hasAlternatives() ? health.lastAttempt : attempt.number;
    while (!health.isSuperseded(sent)) {
      if (!health.accepted) return this.#isUnknownGood(attempt);
      if (this.#mayLead(attempt)) {
        this.#flight ??= flights.lead(this.#client.patienceMs);
        return true;
      }
      this.#land('check');
      if (!flights.busy) confirm(request.target);
      if ((await this.#follow()) === 'proceed') return true;
      budget.confirmed = health.accepted;
    }
    return true;
  }

  /**
   * For a request without an attempt left, when nothing is known of the credential: waits for the flight under way,
   * then for one probe, so that it does not fail while another version is accepted. False: the credential is refused.
   */
  async #awaitVerdict(): Promise<boolean> {
    const { health, flights, confirm } = this.#client;
    if (!health.accepted && flights.busy) await this.#follow();
    if (!health.accepted && !health.refused && !flights.busy) {
      confirm(this.#call.request.target);
      await this.#follow();
    }
    return !health.refused;
  }

  /** `#isExplained` for a credential that is refused, or that the upstream has not accepted yet. */
  #isUnknownGood({ own, number }: Attempt): boolean {
    const { health, onRefused } = this.#client;
    if (health.refused && !this.#turn.whileRefused) return false;
    // An attempt from before a reset says nothing.
    if (!own || health.isSuperseded(number)) return true;
    if (health.refuse(number)) onRefused();
    return false;
  }

  /**
   * True if this request itself can find out with its second attempt. Not if another version could be needed for
   * that, or if others wait, or if the upstream may drop several nonces within a round trip: then the gateway asks
   * with a request of its own, so that no client request fails by it.
   */
  #mayLead({ own, nonce: { nonce, sentAt } }: Attempt): boolean {
    const { flights, clientRequests, hasAlternatives, clock } = this.#client;
    if (own || flights.busy || hasAlternatives() || clientRequests.underWay > 1) return false;
    return nonce.uses <= 1 || clock.now() - sentAt < FRESH_MS;
  }

  /** A nonce that was obtained and found good since the 401 came, if any number of requests can use it here. */
  #verifiedNonce({ nonce: { nonce } }: Attempt, since: number): Nonce | undefined {
    const { pool } = this.#client;
    if (this.#flight !== undefined || !nonce.shareable || nonce.uses < 2 || pool.policy !== 'shared')
      return undefined;
    const known = pool.reserve();
    return known !== undefined && known.obtainedAt > since && known.uses > 0 ? known : undefined;
  }

  #challengeIn(result: Challenged): Challenge {
    const { choose, onAttempt } = this.#client;
    onAttempt('challenged');
    const challenge = choose(result.challenges);
    if (challenge === undefined) throw noDigest();
    if (this.#call.budget.bodySent) throw cannotRepeat();
    this.#countChallenge();
    return challenge;
  }

  /** The nonce to answer a challenge with; or to ask for another one, where others use the state of this one. */
  #answer(challenge: Challenge, result: Challenged, attempt: Attempt | undefined): Step {
    const { pool } = this.#client;
    this.#opening ??= pool.open();
    const refused = attempt?.nonce;
    if (refused?.nonce.sharesStateWith(challenge) && pool.isContested(refused)) return ASK;
    return { nonce: pool.offer(this.#opening, { challenge, cookies: cookiePairs(result.setCookies) }) };
  }

  #countChallenge(): void {
    const { onChallenge, pool } = this.#client;
    const { budget, request } = this.#call;
    const cold: ChallengeReason = pool.policy === 'single-use' ? 'single_use' : 'cold';
    onChallenge(budget.answered > 0 ? 'stale' : cold, request.trace);
  }

  #attemptWith(nonce: Nonce): Attempt | undefined {
    const { pool, health } = this.#client;
    const begun = pool.begin(nonce);
    return begun && { nonce: begun, number: health.attempt(), own: this.#isOwn(nonce) };
  }

  #isOwn(nonce: Nonce): boolean {
    return nonce === this.#opening?.nonce;
  }

  #land(landing: 'check' | 'proceed'): void {
    this.#flight?.land(landing);
    this.#flight = undefined;
  }
}
