import { asGatewayError, type ErrorCode } from '../base/errors.ts';
import { fieldValue } from '../base/raw-headers.ts';
import { Nonce, type NonceAttempt } from '../challenges/nonce.ts';
import type { PendingChallenge } from '../challenges/pending-challenges.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { ChallengeReason } from '../metrics/deployment-metrics.ts';
import {
  type Account,
  anotherNonce,
  challengeRequest,
  chooseChallenge,
  discard,
  isChallenge,
  proveResponse,
  RESPONSES,
  sendMessage,
  signed,
  takeChallenge,
  unsigned,
} from './account.ts';
import { METHOD_REFUSED, SAYS_NOTHING } from './credential-health.ts';
import { cannotRepeat, noDigest, nonceIssuedAgain } from './errors.ts';
import type { Refusal, UpstreamRequest } from './exchange.ts';
import type { Lost, UpstreamResponse } from './response.ts';

/** How a handshake begins. */
export interface HandshakeOptions {
  /** A known nonce that its owner has just found good. */
  readonly nonce?: Nonce | undefined;
  /** A response whose challenge is answered first, or that brought `nonce`; left out: there is none. */
  readonly challenge?: UpstreamResponse | undefined;
  /** True: each attempt goes out with a nonce that was obtained for it. Left out: the first may use a known one. */
  readonly freshNonce?: boolean;
  /** True: attempts go out although the version is refused or in doubt, to find out. */
  readonly verifies?: boolean;
  /** True: they go out although it is in doubt, unless a question has refused it. */
  readonly ignoresDoubt?: boolean;
  /** The challenge that others wait for, or that takes the place of a nonce; the caller closes it. */
  readonly pending?: PendingChallenge;
  /** True: the challenge is asked for on a new connection. */
  readonly freshConnection?: boolean;
}

/** A 401 to an authenticated attempt. What it says of the credential is for its owner to decide. */
export interface Refused {
  readonly kind: 'refused';
  readonly attempt: NonceAttempt;
  /** From `CredentialHealth`. */
  readonly number: number;
  /** True if the nonce was obtained for this request, and no other one has used it. */
  readonly isOwn: boolean;
  /** True if the nonce had just been found good, or obtained for this attempt. */
  readonly isGoodNonce: boolean;
  /** RFC 7616 §3.3: true if the digest was right. */
  readonly isStale: boolean;
  /** True if it names the very nonce that it refuses: some servers give one nonce to all who ask within a second. */
  readonly isNamedAgain: boolean;
  /** True if it shows that the upstream refuses the credential, the target, or a nonce that it has just issued. */
  readonly isEvidence: boolean;
  /** Undefined: none that may be answered. */
  readonly challenge: Challenge | undefined;
  /** The response, whose challenge can be answered; undefined: other requests use the server's state of it. */
  readonly inHand: UpstreamResponse | undefined;
}

/** `interrupted`: the version is refused or in doubt, so nothing more was sent. */
export type HandshakeResult = UpstreamResponse | Refused | 'interrupted';

/** The next step of a request: an attempt with this nonce, or without one to be asked for it; or the end. */
type Step = Nonce | 'ask' | HandshakeResult;
/** A step that is known at once costs no turn of the microtask queue. */
type Next = Step | Promise<Step>;

const NONE: readonly string[] = [];

/**
 * Sends a request with a known nonce, or without one to be asked for it, then answers the challenge, in as many
 * exchanges as the authentication takes (RFC 7616 §3.3 to §3.6). It answers a nonce that is called stale, within the
 * budget of the request, and returns any other refusal.
 * @throws GatewayError when there is no response: `upstream-no-digest` for a 401 without a usable challenge,
 *   `upstream-protocol` when the body cannot be sent again, `upstream-proof-invalid`, and what the exchange throws
 */
export async function handshake(
  account: Account,
  request: UpstreamRequest,
  options: HandshakeOptions,
): Promise<HandshakeResult> {
  const steps = new Handshake(account, request, options);
  try {
    let next = steps.begin();
    for (;;) {
      const step = next instanceof Promise ? await next : next;
      if (step === 'ask') next = steps.ask();
      else if (step instanceof Nonce) next = steps.attempt(step);
      else return step;
    }
  } finally {
    steps.end();
  }
}

/** The steps of one request with one version of a credential. */
class Handshake {
  readonly #account: Account;
  readonly #request: UpstreamRequest;
  readonly #options: HandshakeOptions;
  /** Asked before an attempt leaves: for the request, and whether the credential was refused meanwhile. */
  readonly #refusal: Refusal | undefined;
  /** The challenge that this request obtains; undefined: none yet. */
  #pending: PendingChallenge | undefined;
  /** The response that brought it. */
  #challenger: UpstreamResponse | undefined;
  /** Methods with which a challenge is still to be asked for without the body, in this order. */
  #askWith: readonly string[];

  constructor(account: Account, request: UpstreamRequest, options: HandshakeOptions) {
    const { refusal: ofRequest } = request;
    const { refusal: ofVersion } = account.health;
    if (options.verifies === true) this.#refusal = ofRequest;
    else this.#refusal = ofRequest === undefined ? ofVersion : () => ofRequest() ?? ofVersion();
    this.#account = account;
    this.#request = request;
    this.#options = options;
    this.#pending = options.pending;
    this.#challenger = options.challenge;
    // A body that is not kept can be sent once, so the challenge is asked for first: with HEAD, which has no effects, and
    // with the method itself where that is not supported.
    this.#askWith = request.body.kind === 'streamed' ? ['HEAD', request.method] : NONE;
  }

  /** Chooses the nonce of the first attempt: a known one, one that another request obtains meanwhile, or none. */
  begin(): Next {
    const { pool, health } = this.#account;
    const { nonce, challenge: response, freshNonce = false } = this.#options;
    if (this.#isInterrupted) return 'interrupted';
    if (nonce !== undefined) return nonce;
    const challenge = response && chooseChallenge(this.#account, response);
    if (challenge !== undefined) return this.#answer(challenge, response as UpstreamResponse);
    // A known nonce may cost an attempt, so another one has to be left.
    if (freshNonce || this.#request.budget.left < 2) return 'ask';
    if (this.#askWith.length > 0)
      return (health.accepted && !health.headNonceStale ? pool.healthy : undefined) ?? 'ask';
    return pool.reserve() ?? (this.#pending === undefined ? this.#enter() : 'ask');
  }

  /** Waits for the challenge that another request obtains, or gets the duty to obtain one: `NoncePool.enter`. */
  async #enter(): Promise<Step> {
    const { cancellation, trace } = this.#request;
    const span = trace?.child('challenge');
    try {
      const entry = await this.#account.pool.enter(cancellation);
      if (entry instanceof Nonce) return entry;
      this.#pending = entry;
      return 'ask';
    } finally {
      span?.end(cancellation.reason?.code);
    }
  }

  /** Sends the request without authentication, and at first without a body that is not kept. */
  async ask(): Promise<Step> {
    const request = this.#request;
    const { budget } = request;
    const { pool, health } = this.#account;
    if (this.#isInterrupted) return 'interrupted';
    const [method] = this.#askWith;
    if (method === undefined) budget.bodySent = request.body.kind === 'streamed';
    const result = await sendMessage(
      this.#account,
      method === undefined
        ? unsigned(request, this.#options.freshConnection)
        : challengeRequest(request, method),
    );
    // Some servers close the connection at a HEAD.
    if (result.kind === 'lost') {
      this.#askWith = this.#askWith.slice(1);
      return this.#afterLoss(result, 'ask', method);
    }
    if (method !== undefined) budget.isHttp11 = result.isHttp11;
    if (isChallenge(this.#account, result)) return this.#challenged(result);
    if (method === undefined) {
      if (this.#pending !== undefined) pool.unchallenged(this.#pending);
      return result;
    }
    await discard(this.#account, result);
    const asked = this.#askWith;
    this.#askWith = health.guardedWrites.methodsAfter(asked, request, result.status);
    // The method acted, although HEAD wants authentication: it must not do so again.
    if (asked[1] === 'HEAD' && this.#askWith.length === 0) health.headNonceStale = false;
    return this.#askWith.length > 0 ? 'ask' : (pool.reserve() ?? 'ask');
  }

  /** The step after a 401 to a request without authentication. */
  #challenged(response: UpstreamResponse): Step {
    const { metrics, health, field } = this.#account;
    metrics.upstreamAttempts.challenged.inc();
    const challenge = chooseChallenge(this.#account, response);
    if (challenge === undefined) {
      // Some servers leave the challenge out of their response to HEAD. Behind one of another scheme, the method could
      // be open, and act without the body.
      const lines = fieldValue(response.headers, RESPONSES[field].challenges);
      this.#askWith = lines === undefined ? this.#askWith.slice(1) : NONE;
      if (this.#askWith.length === 0) throw noDigest();
      return 'ask';
    }
    const [asked, next] = this.#askWith;
    // A path that wants authentication for HEAD is taken to want it for the method, too.
    if (health.headNonceStale && next !== undefined && asked !== this.#request.method) {
      this.#askWith = [next, 'HEAD'];
      return 'ask';
    }
    if (!this.#request.budget.bodySent) return this.#answer(challenge, response);
    this.#leave(challenge, response);
    throw cannotRepeat();
  }

  /** Sends the request with this nonce, unless the version is in doubt or the nonce is no longer good. */
  attempt(nonce: Nonce): Next {
    const { pool, health } = this.#account;
    if (this.#isInterrupted) return 'interrupted';
    const begun = pool.begin(nonce);
    if (begun !== undefined) return this.#send(begun, health.attempt());
    // It was left to another process before the upstream issued it once more.
    if (this.#isOwn(nonce)) return this.#askForAnother(nonce);
    // It was refused meanwhile, or belongs to another process now.
    return nonce === this.#options.nonce ? 'ask' : this.begin();
  }

  /** Asks until a nonce comes that this process may answer, as often as after a refusal that names its nonce again. */
  async #askForAnother({ challenge }: Nonce): Promise<Step> {
    const step = await anotherNonce(
      challenge.nonce,
      () => this.ask(),
      (asked) => (asked instanceof Nonce ? asked.challenge.nonce : undefined),
    );
    if (step instanceof Nonce && step.exhausted) throw nonceIssuedAgain();
    return step;
  }

  /** Ends the part of this request in the pool. */
  end(): void {
    const pending = this.#pending;
    if (pending !== undefined && pending !== this.#options.pending) this.#account.pool.close(pending);
  }

  async #send(attempt: NonceAttempt, number: number): Promise<Step> {
    const request = this.#request;
    const { budget } = request;
    const { pool, field } = this.#account;
    const { nonce } = attempt;
    let result: UpstreamResponse | Lost;
    try {
      const follows = this.#isOwn(nonce) ? this.#challenger : undefined;
      const message = signed(request, attempt, field, this.#refusal, follows);
      budget.bodySent = request.body.kind === 'streamed';
      result = await sendMessage(this.#account, message);
      if (result.kind === 'response' && !isChallenge(this.#account, result)) {
        this.#accept(attempt, number, result);
        return result;
      }
    } catch (error) {
      const next = this.#afterUnsent(asGatewayError(error).code);
      if (next === undefined) throw error;
      budget.bodySent = false;
      pool.abandon(attempt);
      return next;
    } finally {
      nonce.endAttempt();
    }
    if (result.kind === 'lost') {
      pool.abandon(attempt);
      return this.#afterLoss(result, this.#isOwn(nonce) ? 'ask' : undefined);
    }
    budget.answered += 1;
    const refused = this.#refused(attempt, number, result);
    const { challenge, isStale } = refused;
    if (challenge !== undefined && budget.bodySent) this.#leave(challenge, result);
    if (!isStale || challenge === undefined || budget.spent) return refused;
    return refused.inHand === undefined ? 'ask' : this.#answer(challenge, result);
  }

  /** The step after an attempt of which nothing left, since it was refused with this code; undefined: none follows. */
  #afterUnsent(code: ErrorCode): 'ask' | 'interrupted' | undefined {
    // It waited for a connection while others found that the credential is refused.
    if (code === 'upstream-credential-refused') return 'interrupted';
    // The upstream answered others with HTTP/1.0: its response to HEAD shows whether it reads chunks.
    return code === 'length-required' && this.#request.budget.isHttp11 === undefined ? 'ask' : undefined;
  }

  /** Takes over the facts of a response that is not a challenge. @throws GatewayError `upstream-proof-invalid` */
  #accept(attempt: NonceAttempt, number: number, response: UpstreamResponse): void {
    const { field, metrics } = this.#account;
    const { target, budget } = this.#request;
    const { proof } = RESPONSES[field];
    if (fieldValue(response.headers, proof) === undefined) {
      this.#takeOver(attempt, number, response);
    } else {
      const sent = { uri: target, nc: attempt.nc };
      try {
        proveResponse(response, proof, attempt.nonce, sent, (nextnonce) =>
          this.#takeOver(attempt, number, response, nextnonce),
        );
      } catch (error) {
        metrics.upstreamAttempts.error.inc();
        throw error;
      }
    }
    budget.answered += 1;
  }

  /** The response shows that the attempt was accepted, unless its status comes before the credential is looked at. */
  #takeOver(attempt: NonceAttempt, number: number, { status }: UpstreamResponse, nextnonce?: string): void {
    const { pool, health, credential, recorder, recorded } = this.#account;
    const saysNothing =
      SAYS_NOTHING.has(status) || (this.#options.verifies === true && METHOD_REFUSED.has(status));
    const wasAccepted = health.accepted;
    if (saysNothing) health.noteNothing();
    else health.accept(number);
    if (!wasAccepted && health.accepted && recorded !== undefined)
      recorder?.note(recorded, 'accepted', [credential.version]);
    pool.accept(attempt, this.#pending, nextnonce, this.#request.budget);
  }

  /** True if the version is refused or in doubt, so that its owner decides what follows. */
  get #isInterrupted(): boolean {
    const { refused, inDoubt, refusedInDoubt } = this.#account.health;
    const { verifies = false, ignoresDoubt = false } = this.#options;
    return !verifies && (refused || refusedInDoubt || (inDoubt && !ignoresDoubt));
  }

  /**
   * Repeats a request whose connection broke before any response, on a new connection. A nonce with a count is not
   * used again, since the upstream may have seen the count or not. A body that is not kept can be sent again only if no
   * byte of it left.
   */
  #afterLoss(lost: Lost, next: Step | undefined, method = this.#request.method): Next {
    const { budget } = this.#request;
    budget.bodySent &&= lost.sent;
    if (!budget.takeRepeat(lost, method)) throw lost.error;
    return next ?? this.begin();
  }

  /** Takes the nonce of a refused attempt out of use, and returns the facts of the refusal. */
  #refused(attempt: NonceAttempt, number: number, response: UpstreamResponse): Refused {
    const { pool, metrics, field, health } = this.#account;
    const { budget } = this.#request;
    const { nonce } = attempt;
    const isOwn = this.#isOwn(nonce);
    const challenge = chooseChallenge(this.#account, response);
    const isStale = challenge?.stale === true;
    // Without stale, the target or the password was refused (RFC 7616 §3.3).
    health.headNonceStale ||= isOwn && isStale && this.#askWith[0] === 'HEAD';
    pool.refuse(attempt, isStale, challenge, budget);
    metrics.upstreamAttempts[!isStale && isOwn ? 'refused' : 'stale'].inc();
    budget.onlyStale &&= isStale;
    // A forward proxy cannot be asked for another nonce at a target of the gateway's own.
    const isNamedAgain = field === 'authorization' && !isStale && challenge?.nonce === nonce.challenge.nonce;
    const isEvidence = isOwn && !isStale && !isNamedAgain;
    budget.ownRefused ||= isEvidence;
    budget.ownStale ||= isOwn && isStale;
    const isContested =
      challenge !== undefined && nonce.sharesStateWith(challenge) && pool.isContested(attempt);
    return {
      kind: 'refused',
      attempt,
      number,
      isOwn,
      isGoodNonce: isEvidence || nonce === this.#options.nonce,
      isStale,
      isNamedAgain,
      isEvidence,
      challenge,
      inHand: challenge === undefined || isContested ? undefined : response,
    };
  }

  /** Leaves a challenge to other requests that this one, whose body is gone, cannot answer. */
  #leave(challenge: Challenge, response: UpstreamResponse): void {
    this.#account.health.guardedWrites.add(this.#request);
    this.#answer(challenge, response);
    this.#account.pool.acceptUntried(this.#pending as PendingChallenge);
  }

  /** Returns the nonce with which a challenge is answered. */
  #answer(challenge: Challenge, response: UpstreamResponse): Nonce {
    const { pool } = this.#account;
    const { budget, trace } = this.#request;
    const cold: ChallengeReason = pool.policy === 'single-use' ? 'single_use' : 'cold';
    // A nonce was refused before: in this handshake, or in the one that made somebody ask.
    const reason = budget.answered > 0 || this.#options.verifies === true ? 'stale' : cold;
    this.#pending ??= pool.open();
    this.#challenger = response;
    return takeChallenge(this.#account, this.#pending, challenge, response, { reason, trace });
  }

  #isOwn(nonce: Nonce): boolean {
    return nonce === this.#pending?.nonce;
  }
}
