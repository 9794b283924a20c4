import type { Cancellation } from '../base/cancellation.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import type { Opening } from '../challenges/handshake-queue.ts';
import { Nonce, type NonceAttempt } from '../challenges/nonce.ts';
import { parseAuthenticationInfo } from '../digest/authentication-info.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { ChallengeReason } from '../metrics/metrics.ts';
import { Doubt } from './doubt.ts';
import type { BodyProof, ExchangeRequest, ExchangeResult } from './exchange.ts';
import type { HandshakeParts } from './handshake-parts.ts';
import { verifyProof } from './proof.ts';
import { alwaysStale, cannotRepeat, credentialRefused, noDigest } from './refusals.ts';
import { IDEMPOTENT, question, signed, type UpstreamRequest, unsigned } from './signing.ts';
import { type AnswerSink, unseen } from './sink.ts';
import { SAYS_NOTHING } from './standing.ts';

/** Authenticated attempts for one request, however often the upstream calls its nonces stale. */
const MAX_AUTHENTICATED = 2;
type Challenged = Extract<ExchangeResult, { kind: 'challenged' }>;

/** One client request with one version of a credential, in as many exchanges as its authentication takes. */
export class Handshake {
  readonly #parts: HandshakeParts;
  readonly #request: UpstreamRequest;
  readonly #sink: AnswerSink;
  readonly #cancellation: Cancellation;
  /** Whether it may use a credential that is known to be refused. */
  readonly #trial: boolean;
  #opening: Opening | undefined;
  #authenticated = 0;
  /** Of the last authenticated attempt, from `Standing`. */
  #attemptNumber = 0;
  /** What went out last; undefined: a request without authentication. */
  #attempt: NonceAttempt | undefined;
  /** None before the first 401. */
  #doubt: Doubt | undefined;
  #repeated = false;
  #streamed = false;

  constructor(
    parts: HandshakeParts,
    request: UpstreamRequest,
    sink: AnswerSink,
    cancellation: Cancellation,
    trial = false,
  ) {
    this.#parts = parts;
    this.#trial = trial;
    this.#request = request;
    this.#sink = sink;
    this.#cancellation = cancellation;
  }

  /** Whether the request can be sent once more, after a refusal. */
  get repeatable(): boolean {
    return !this.#streamed;
  }

  /**
   * Sends the request with the nonce that is known, or without one to be asked for it, then answers
   * what it is asked.
   * @throws GatewayError when no answer reached the sink, or when it broke off
   */
  run(): Promise<void> {
    const known = this.#parts.pool.reserve();
    return known === undefined ? this.#enter() : this.#walk(known, undefined);
  }

  async #enter(): Promise<void> {
    const entry = await this.#parts.enter(this.#cancellation, this.#request.trace);
    if (entry instanceof Nonce) await this.#walk(entry, undefined);
    else await this.#walk(undefined, entry);
  }

  /**
   * Sends the request only for the nonce that comes of it.
   * @throws GatewayError as `run`
   */
  async renew(replaced: Nonce): Promise<void> {
    const { pool } = this.#parts;
    const opening = pool.open(replaced);
    this.#opening = opening;
    try {
      this.#checkCredential();
      const challenged = await this.#send(undefined);
      const nonce = challenged && this.#nextNonce(challenged);
      // A nonce without a count need not be tried: whoever is refused with it asks for another.
      if (nonce?.shareable === true) pool.acceptUntried(opening);
      const refused = nonce?.shareable === false ? await this.#send(nonce) : undefined;
      if (refused !== undefined) this.#nextNonce(refused);
    } finally {
      pool.close(opening);
    }
  }

  async #walk(known: Nonce | undefined, opening: Opening | undefined): Promise<void> {
    const { pool, standing } = this.#parts;
    let nonce = known;
    this.#opening = opening;
    try {
      this.#checkCredential();
      // Another process's nonce says nothing of this process's password.
      if (known !== undefined && !standing.proven) await this.#clear(known);
      if (this.#request.body.kind === 'streamed') nonce = (await this.#askFirst()) ?? nonce;
      let challenged = await this.#send(nonce);
      while (challenged !== undefined) {
        nonce = await this.#clear(this.#nextNonce(challenged));
        challenged = await this.#send(nonce);
      }
    } finally {
      this.#doubt?.leave();
      if (this.#opening !== undefined) pool.close(this.#opening);
    }
  }

  /** A body that is not kept can be sent once: its nonce is asked for with a request that does nothing. */
  async #askFirst(): Promise<Nonce | undefined> {
    const cancellation = this.#cancellation;
    const asked = { ...question(this.#request), cancellation, onHead: () => undefined };
    const result = await this.#parts.exchange(asked, unseen(this.#sink));
    if (result.kind === 'answered') this.#parts.onAttempt('ok');
    return result.kind === 'challenged' ? this.#clear(this.#nextNonce(result)) : undefined;
  }

  /**
   * The nonce, if its challenge can be answered, when nobody else is finding out whether the credential is good.
   * @throws GatewayError `upstream-credential-refused` when it is not
   */
  async #clear(nonce: Nonce | undefined): Promise<Nonce | undefined> {
    if (nonce === undefined) return undefined;
    this.#doubt ??= new Doubt(this.#parts);
    const answerable = await this.#doubt.settle(nonce.challenge, this.#cancellation);
    this.#checkCredential();
    return answerable || this.#request.body.kind === 'streamed' ? nonce : undefined;
  }

  /** The request, authenticated if a nonce is given. Resolves to the 401, or undefined: answered. */
  async #send(nonce: Nonce | undefined): Promise<Challenged | undefined> {
    let result = await this.#sendOnce(nonce);
    if (result.kind === 'lost' && this.#mayRepeat()) {
      this.#repeated = true;
      result = await this.#sendOnce(nonce);
    }
    if (result.kind === 'lost') throw result.error;
    if (result.kind === 'challenged') return result;
    this.#parts.onAttempt('ok');
    return undefined;
  }

  /** Asks for a challenge instead where the nonce may not be used any more. */
  async #sendOnce(nonce: Nonce | undefined): Promise<ExchangeResult> {
    const attempt = nonce && this.#parts.pool.begin(nonce);
    this.#attempt = attempt;
    try {
      return await this.#parts.exchange(this.#exchangeFor(attempt), this.#sink);
    } finally {
      attempt?.end();
    }
  }

  #mayRepeat(): boolean {
    return !this.#repeated && !this.#streamed && IDEMPOTENT.has(this.#request.method);
  }

  #exchangeFor(attempt: NonceAttempt | undefined): ExchangeRequest {
    const request = this.#request;
    const cancellation = this.#cancellation;
    this.#streamed = request.body.kind === 'streamed';
    if (attempt === undefined) {
      return { ...unsigned(request), cancellation, onHead: () => this.#unchallenged() };
    }
    const { nonce, nc } = attempt;
    this.#authenticated += 1;
    this.#attemptNumber = this.#parts.standing.attempt();
    const onHead = (status: number, lines: readonly string[]): BodyProof | undefined => {
      if (lines.length === 0) {
        this.#accepted(attempt, status, undefined);
        return undefined;
      }
      const info = parseAuthenticationInfo(lines);
      const accept = (): void => this.#accepted(attempt, status, info.nextnonce);
      return verifyProof(info, nonce, { uri: request.target, nc }, accept);
    };
    const { method, target, headers, body, trace } = signed(request, nonce, nc);
    return { method, target, headers, body, trace, cancellation, onHead };
  }

  #unchallenged(): undefined {
    if (this.#opening !== undefined) this.#parts.pool.unchallenged(this.#opening);
  }

  #accepted(attempt: NonceAttempt, status: number, nextnonce: string | undefined): void {
    const { pool, standing, onAccepted } = this.#parts;
    if (SAYS_NOTHING.has(status)) {
      this.#doubt?.conclude('alone');
    } else if (standing.accept(this.#attemptNumber)) {
      this.#doubt?.conclude('accepted');
      onAccepted(status);
    }
    pool.accept(attempt, this.#opening, nextnonce);
    if (status < 300 && this.#request.method === 'GET') this.#parts.onSuccess(this.#request.target);
  }

  /**
   * Classifies the 401 to what went out last and gives the nonce to answer it with; undefined: one is to be
   * asked for without an answer.
   * @throws GatewayError when there is nothing to answer, or no sense in it
   */
  #nextNonce(result: Challenged): Nonce | undefined {
    const { pool } = this.#parts;
    const attempt = this.#attempt;
    const challenge = this.#parts.choose(result.challenges);
    if (attempt !== undefined) this.#refuse(attempt, challenge);
    this.#parts.onAttempt(attempt === undefined ? 'challenged' : 'stale');
    if (challenge === undefined) throw noDigest();
    this.#checkThatMoreHelps();
    this.#opening ??= pool.open();
    const contested = attempt !== undefined && (attempt.contested || pool.isContested(attempt.nonce));
    if (contested && attempt.nonce.sharesStateWith(challenge)) return undefined;
    this.#parts.onChallenge(this.#reason(this.#opening), this.#request.trace);
    return pool.offer(this.#opening, { challenge, cookies: cookiePairs(result.setCookies) });
  }

  /** A nonce of one's own that is refused and not stale: it is the credential that is refused. */
  #refuse(attempt: NonceAttempt, challenge: Challenge | undefined): void {
    const { pool, standing, onAttempt, onRefused } = this.#parts;
    pool.refuse(attempt, challenge?.stale === true);
    // RFC 7616 §3.3: stale says that the digest was right.
    if (challenge?.stale === true) return;
    this.#doubt ??= new Doubt(this.#parts);
    this.#doubt.raise();
    if (attempt.nonce !== this.#opening?.nonce) return;
    onAttempt('refused');
    if (standing.refuse(this.#attemptNumber)) onRefused();
    if (standing.refused) this.#doubt.conclude('refused');
    throw credentialRefused();
  }

  #checkThatMoreHelps(): void {
    if (this.#authenticated >= MAX_AUTHENTICATED) throw alwaysStale();
    if (this.#streamed) throw cannotRepeat();
    this.#checkCredential();
  }

  #checkCredential(): void {
    if (this.#parts.standing.refused && !this.#trial) throw credentialRefused();
  }

  #reason(opening: Opening): ChallengeReason {
    if (opening.replaces !== undefined) return 'ahead';
    if (this.#authenticated > 0) return 'stale';
    return this.#parts.pool.policy === 'single-use' ? 'single_use' : 'cold';
  }
}
