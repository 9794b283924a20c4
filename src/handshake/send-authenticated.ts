import { asGatewayError } from '../base/errors.ts';
import { fieldValues } from '../base/raw-headers.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import { Nonce } from '../challenges/nonce.ts';
import type { PendingChallenge } from '../challenges/pending-challenges.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { ChallengeReason } from '../metrics/metrics.ts';
import type { AttemptBudget } from './attempt-budget.ts';
import { type Attempt, CredentialCheck, FRESH_MS } from './credential-check.ts';
import { SAYS_NOTHING } from './credential-health.ts';
import type { DigestClient, ExchangeCall } from './digest-client.ts';
import { alwaysStale, cannotRepeat, noDigest, refusedAgain, targetRefused } from './errors.ts';
import type { Lost, Message, Refusal } from './exchange.ts';
import { UpstreamResponse } from './response.ts';
import { challengeRequest, signed, unsigned } from './signing.ts';

/** One request, the same for every version of a credential that it tries. */
export interface Call extends ExchangeCall {
  readonly budget: AttemptBudget;
}

/** How a request uses one version of a credential. */
export interface Turn {
  /** True: each attempt goes out with a nonce that was obtained for it. False: the first may use a known one. */
  readonly ownNonce: boolean;
  /** The most authenticated attempts, within the budget of the request. */
  readonly attempts: number;
}

export const IN_USE: Turn = { ownNonce: false, attempts: 2 };
/** The version in use, for a request whose trial of a candidate failed and which has one attempt left. */
export const AFTER_TRIAL: Turn = { ...IN_USE, ownNonce: true };
/** A candidate: the other attempt is for the version in use. */
export const TRIAL: Turn = { ...AFTER_TRIAL, attempts: 1 };

/** `refused`: the version is, so the request goes on with another one. */
export type Outcome = UpstreamResponse | 'refused';

/** A 401 to an authenticated attempt. */
interface Refused {
  readonly attempt: Attempt;
  /** Undefined: none that may be answered. */
  readonly challenge: Challenge | undefined;
  readonly isStale: boolean;
  /** True if it names the very nonce that it refuses: some servers give one nonce to all who ask within a second. */
  readonly isNamedAgain: boolean;
  /** True if it shows that the upstream refuses the credential, the target, or a nonce that it has just issued. */
  readonly isEvidence: boolean;
  readonly isLast: boolean;
}

/** The next step of a request: an attempt with this nonce, or without one to be asked for it; or the end. */
type Step = Nonce | 'ask' | Outcome;
/** A step that is known at once costs no turn of the microtask queue. */
type Next = Step | Promise<Step>;

const NONE: readonly string[] = [];

/**
 * Sends a request with a known nonce, or without one to be asked for it, then answers the challenge, in as many
 * exchanges as the authentication takes (RFC 7616 §3.3 to §3.6).
 * @throws GatewayError when there is no response: `upstream-no-digest` for a 401 without a usable challenge,
 *   `upstream-protocol` when every nonce is stale or the body cannot be sent again, `upstream-proof-invalid`, and what
 *   the exchange throws
 */
export async function sendAuthenticated(client: DigestClient, call: Call, turn: Turn): Promise<Outcome> {
  const handshake = new Handshake(client, call, turn);
  client.state.clientRequests += 1;
  try {
    let next = handshake.begin();
    for (;;) {
      const step = next instanceof Promise ? await next : next;
      if (step === 'refused' || step instanceof UpstreamResponse) return step;
      next = step === 'ask' ? handshake.ask() : handshake.attempt(step);
    }
  } finally {
    client.state.clientRequests -= 1;
    handshake.end();
  }
}

/** The steps of one request with one version of a credential. */
class Handshake {
  readonly #client: DigestClient;
  readonly #call: Call;
  readonly #turn: Turn;
  readonly #check: CredentialCheck;
  #lastAttempt: number;
  /** The challenge that this request obtains; undefined: none yet. */
  #pending: PendingChallenge | undefined;
  /** A nonce that was obtained and found good since this request was refused. */
  #verified: Nonce | undefined;
  /** True if this request has got an attempt more for a refusal that proves nothing. */
  #hasTakenMore = false;
  /** Methods with which a challenge is still to be asked for without the body, in this order. */
  #askWith: readonly string[];

  constructor(client: DigestClient, call: Call, turn: Turn) {
    const { budget, request } = call;
    this.#client = client;
    this.#call = call;
    this.#turn = turn;
    this.#check = new CredentialCheck(client, call);
    this.#lastAttempt = Math.min(budget.limit, budget.answered + turn.attempts);
    // A body that is not kept can be sent once, so the challenge is asked for first: with HEAD, which has no effects, and
    // with the method itself where the upstream wants authentication for that one only.
    this.#askWith = request.body.kind === 'streamed' ? ['HEAD', request.method] : NONE;
  }

  /** Chooses the nonce of the first attempt: a known one, one that another request obtains meanwhile, or none. */
  begin(): Next {
    const { pool, health, listener } = this.#client;
    if (this.#turn.ownNonce || this.#call.budget.answered > 0) return 'ask';
    if (this.#askWith.length > 0) return (health.accepted ? pool.healthy : undefined) ?? 'ask';
    // A known nonce may cost an attempt, and one is left then: too few to try two versions.
    const nonce = health.accepted || !listener.hasAlternatives ? pool.reserve() : undefined;
    return nonce ?? (this.#pending === undefined ? this.#enter() : 'ask');
  }

  async #enter(): Promise<Step> {
    const { request, cancellation } = this.#call;
    const entry = await this.#client.enter(cancellation, request.trace);
    if (entry instanceof Nonce) return entry;
    this.#pending = entry;
    return 'ask';
  }

  /** Sends the request without authentication, and at first without a body that is not kept. */
  async ask(): Promise<Step> {
    const { budget, request } = this.#call;
    if (this.#client.health.refused) return 'refused';
    budget.asked += 1;
    const [method] = this.#askWith;
    const result = await (method === undefined
      ? this.#exchange(unsigned(request))
      : this.#askWithoutBody(method));
    // Some servers close the connection at a HEAD.
    if (result.kind === 'lost') {
      this.#askWith = this.#askWith.slice(1);
      return this.#afterLoss(result, 'ask', method);
    }
    if (this.#client.isChallenged(result)) return this.#answer(this.#challengeIn(result), result, undefined);
    this.#askWith = this.#askWith.slice(1);
    if (method === undefined) {
      if (this.#pending !== undefined) this.#client.pool.unchallenged(this.#pending);
      return result;
    }
    await this.#client.skip(result);
    return this.#askWith.length > 0 ? 'ask' : (this.#client.pool.reserve() ?? 'ask');
  }

  #askWithoutBody(method: string): Promise<UpstreamResponse | Lost> {
    const { request, budget } = this.#call;
    const call = { ...this.#call, request: { ...request, interim: undefined } };
    return this.#client.exchange(challengeRequest(request, method), call, budget.needsFreshConnection);
  }

  /** Sends the request with this nonce, unless the credential is refused or the nonce is no longer good. */
  attempt(nonce: Nonce): Next {
    return this.#check.isNeedless ? this.#use(nonce) : this.#useOnceChecked(nonce);
  }

  /** Ends the part of this request in the pool and in the test of the credential. */
  end(): void {
    this.#check.end('check');
    if (this.#pending !== undefined) this.#client.pool.close(this.#pending);
  }

  #use(nonce: Nonce): Next {
    const begun = this.#client.pool.begin(nonce);
    // The nonce was refused meanwhile, or belongs to another process now.
    if (begun === undefined) return this.#isOwn(nonce) ? 'ask' : this.begin();
    const number = this.#client.health.attempt();
    return this.#send({ nonce: begun, number, own: this.#isOwn(nonce) });
  }

  /** Waits while the credential is tested, or begins to test it if it is unknown, before the nonce is used. */
  async #useOnceChecked(nonce: Nonce): Promise<Step> {
    const { clock, listener } = this.#client;
    const since = clock.now();
    const entry = await this.#check.begin();
    if (entry === 'refused') return 'refused';
    // A nonce of another process, which only expired, would cost the attempt that another version may need.
    if (this.#check.leads && !this.#isOwn(nonce) && listener.hasAlternatives) return 'ask';
    if (entry === 'at-once') return this.#use(nonce);
    if (!this.#isOwn(nonce)) return this.begin();
    // An upstream that keeps state by opaque refuses a right answer when others were there first.
    const isGood = nonce.challenge.opaque === undefined && clock.now() - since < FRESH_MS;
    return isGood || !this.#call.budget.mayAsk ? this.#use(nonce) : 'ask';
  }

  async #send(attempt: Attempt): Promise<Step> {
    const { request, budget } = this.#call;
    const { nonce, nc } = attempt.nonce;
    const message = signed(request, nonce, nc, this.#client.options.field);
    let result: UpstreamResponse | Lost;
    try {
      result = await this.#exchange(message, this.#attemptRefusal);
      if (result.kind === 'response' && !this.#client.isChallenged(result)) {
        const { status } = result;
        this.#client.prove(result, nonce, { uri: request.target, nc }, (nextnonce) =>
          this.#onAccepted(attempt, status, nextnonce),
        );
        budget.answered += 1;
        return result;
      }
    } catch (error) {
      // It waited for a connection while others found that the credential is refused, so nothing of it left.
      if (asGatewayError(error).code !== 'upstream-credential-refused') throw error;
      budget.bodySent = false;
      this.#client.pool.abandon(attempt.nonce);
      return 'refused';
    } finally {
      attempt.nonce.end();
    }
    if (result.kind === 'lost') {
      this.#client.pool.abandon(attempt.nonce);
      return this.#afterLoss(result, attempt.own ? 'ask' : undefined);
    }
    budget.answered += 1;
    return this.#judge(attempt, result);
  }

  /** Asked before an attempt leaves: for the request, and whether the credential was refused meanwhile. */
  get #attemptRefusal(): Refusal {
    const { request } = this.#call;
    const ofRequest = request.refusal;
    const ofCredential = this.#client.refusal;
    return ofRequest === undefined ? ofCredential : () => ofRequest() ?? ofCredential();
  }

  #exchange(message: Message, refusal = this.#call.request.refusal): Promise<UpstreamResponse | Lost> {
    const { budget, request } = this.#call;
    if (request.body.kind === 'streamed' && message.body !== null) return this.#stream(message, refusal);
    return this.#client.exchange(message, this.#call, budget.needsFreshConnection, refusal);
  }

  /** Sends a body that is not kept, which can be sent again only if no byte of it left. */
  async #stream(message: Message, refusal: Refusal | undefined): Promise<UpstreamResponse | Lost> {
    const { budget } = this.#call;
    budget.bodySent = true;
    const result = await this.#client.exchange(message, this.#call, budget.needsFreshConnection, refusal);
    if (result.kind === 'lost') budget.bodySent = result.sent;
    return result;
  }

  /**
   * Repeats a request whose connection broke before any response, on a new connection. A nonce with a count is not
   * used again, since the upstream may have seen the count or not.
   */
  #afterLoss(lost: Lost, next: Step | undefined, method = this.#call.request.method): Next {
    if (!this.#call.budget.takeRepeat({ method }, lost)) throw lost.error;
    return next ?? this.begin();
  }

  #onAccepted(attempt: Attempt, status: number, nextnonce: string | undefined): void {
    const { pool, health, listener } = this.#client;
    const { method, target } = this.#call.request;
    if (SAYS_NOTHING.has(status)) {
      this.#check.end('proceed');
    } else if (health.accept(attempt.number)) {
      this.#check.accept();
      listener.onAccepted(status);
    }
    pool.accept(attempt.nonce, this.#pending, nextnonce);
    if (status < 300 && method === 'GET') listener.onSuccess(target);
  }

  /** Decides what follows a 401 to an authenticated attempt. */
  async #judge(attempt: Attempt, result: UpstreamResponse): Promise<Step> {
    const { clock, listener } = this.#client;
    const { budget } = this.#call;
    const came = clock.now();
    const refusal = this.#classify(attempt, result);
    const { challenge, isStale, isNamedAgain, isEvidence, isLast } = refusal;
    if (!isStale && !(await this.#check.survives(attempt, isEvidence, isLast))) return 'refused';
    if (isLast && listener.isReplaced) return 'refused';
    if (challenge === undefined) throw noDigest();
    if (budget.bodySent) this.#leave(challenge, result);
    this.#extend(refusal);
    const known = isStale ? undefined : this.#verifiedNonce(attempt, came);
    if (known !== undefined) return known;
    this.#countChallenge();
    // Where a round trip takes long, the upstream may drop this challenge as well before the answer arrives.
    const isFresh = this.#check.leads || clock.now() - attempt.nonce.sentAt < FRESH_MS;
    return isStale || (isFresh && !isNamedAgain) ? this.#answer(challenge, result, attempt) : 'ask';
  }

  #classify(attempt: Attempt, result: UpstreamResponse): Refused {
    const { pool, listener } = this.#client;
    const { budget } = this.#call;
    const { own, nonce } = attempt;
    const challenge = this.#client.choose(result);
    // RFC 7616 §3.3: stale says that the digest was right.
    const isStale = challenge?.stale === true;
    pool.refuse(nonce, isStale, challenge);
    listener.onAttempt(!isStale && own ? 'refused' : 'stale');
    budget.onlyStale &&= isStale;
    // A forward proxy gets no probe that could ask for another nonce.
    const mayAskAgain = this.#client.options.field === 'authorization';
    const isNamedAgain = mayAskAgain && !isStale && challenge?.nonce === nonce.nonce.challenge.nonce;
    const isEvidence = own && !isStale && !isNamedAgain;
    const isLast = budget.answered >= this.#lastAttempt;
    return { attempt, challenge, isStale, isNamedAgain, isEvidence, isLast };
  }

  /**
   * Allows the request one attempt more if this was its last one, and one is owed to it.
   * @throws the error that ends the request, if none is, or if its body is gone
   */
  #extend({ attempt, isStale, isNamedAgain, isEvidence, isLast }: Refused): void {
    const { budget } = this.#call;
    if (isNamedAgain && attempt.own && !this.#hasTakenMore) {
      this.#hasTakenMore = true;
      budget.oweAttempt();
    }
    if (!isLast && !budget.bodySent) return;
    if (!budget.bodySent && budget.takeOwed()) {
      this.#lastAttempt += 1;
      return;
    }
    const isGoodNonce = isEvidence || attempt.nonce.nonce === this.#verified;
    if (isGoodNonce && !isStale && budget.confirmed) throw targetRefused();
    if (!isLast) throw cannotRepeat();
    throw budget.onlyStale ? alwaysStale() : refusedAgain();
  }

  /** Returns a nonce that was obtained and found good since the 401 came, if any number of requests can use it here. */
  #verifiedNonce({ nonce: { nonce } }: Attempt, since: number): Nonce | undefined {
    const { pool } = this.#client;
    if (this.#check.leads || !nonce.shareable || nonce.uses < 2 || pool.policy !== 'shared') return undefined;
    const known = pool.reserve();
    this.#verified = known !== undefined && known.obtainedAt > since && known.uses > 0 ? known : undefined;
    return this.#verified;
  }

  #challengeIn(result: UpstreamResponse): Challenge {
    this.#client.listener.onAttempt('challenged');
    const challenge = this.#client.choose(result);
    if (challenge === undefined) throw noDigest();
    this.#countChallenge();
    if (!this.#call.budget.bodySent) return challenge;
    this.#leave(challenge, result);
    throw cannotRepeat();
  }

  /** Leaves a challenge to other requests that this one, whose body is gone, cannot answer. */
  #leave(challenge: Challenge, { headers }: UpstreamResponse): void {
    const { pool } = this.#client;
    this.#pending ??= pool.open();
    pool.offer(this.#pending, { challenge, cookies: cookiePairs(fieldValues(headers, 'set-cookie')) });
    pool.acceptUntried(this.#pending);
  }

  /** Answers a challenge; or asks for another one, where other requests use the server's state of this one. */
  #answer(challenge: Challenge, result: UpstreamResponse, attempt: Attempt | undefined): Step {
    const { pool } = this.#client;
    this.#pending ??= pool.open();
    const refused = attempt?.nonce;
    if (refused?.nonce.sharesStateWith(challenge) && pool.isContested(refused)) return 'ask';
    const cookies = cookiePairs(fieldValues(result.headers, 'set-cookie'));
    return pool.offer(this.#pending, { challenge, cookies });
  }

  #countChallenge(): void {
    const { budget, request } = this.#call;
    const cold: ChallengeReason = this.#client.pool.policy === 'single-use' ? 'single_use' : 'cold';
    this.#client.obtained(budget.answered > 0 ? 'stale' : cold, request.trace);
  }

  #isOwn(nonce: Nonce): boolean {
    return nonce === this.#pending?.nonce;
  }
}
