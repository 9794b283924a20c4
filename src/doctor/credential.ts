import { randomBytes } from 'node:crypto';
import type { Cancellation } from '../base/cancellation.ts';
import { monotonicClock } from '../base/clock.ts';
import { fieldValues } from '../base/raw-headers.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import { Nonce } from '../challenges/nonce.ts';
import type { NoncePolicy } from '../challenges/store/store.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { chooseFor } from '../digest/authorization.ts';
import { type Challenge, offersScheme, parseChallenges } from '../digest/challenge.ts';
import { anotherNonce, proveResponse, signed, unsigned } from '../handshake/account.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import { NO_BODY, type UpstreamRequest } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import { about, type Finding, fine, wrong } from './finding.ts';
import { challengesOf, type ObservedConnections } from './observed-connections.ts';
import type { Probe } from './probe.ts';
import {
  accessFinding,
  challengeFinding,
  connectionFinding,
  unavailableFinding,
  unprovenFinding,
} from './upstream-findings.ts';

/**
 * Limit of authenticated attempts with one credential: after more failures an upstream may lock out the
 * address, and with it the gateway.
 */
const MAX_ATTEMPTS = 3;
const LIMIT = `at most ${MAX_ATTEMPTS} attempts with one credential`;

export interface ExaminedCredential {
  /** Name of the credential in findings. */
  readonly label: string;
  readonly credential: Credential;
  /** A request for each of its sites, or a single one; never empty. */
  readonly probes: readonly SiteProbe[];
}

interface SiteProbe {
  /** Undefined if the deployment has no sites. */
  readonly site: string | undefined;
  /** The subject of its finding `access`: the site, with the credential if others are examined with the site, too. */
  readonly subject: string;
  readonly probe: Probe;
}

interface ExaminationDeps {
  readonly connections: ObservedConnections;
  readonly algorithms: readonly AlgorithmName[];
  readonly noncePolicy: NoncePolicy | 'auto';
  /** The address that the upstream is expected to see. */
  readonly address: string | undefined;
  readonly cancellation: Cancellation;
}

/** The response to an authenticated request. */
interface Attempt {
  readonly response: UpstreamResponse;
  readonly nextnonce: boolean;
}

/** A site and the response to it that counts, with the nonce that was used. */
interface Authenticated {
  readonly siteProbe: SiteProbe;
  readonly nonce: Nonce;
  readonly attempt: Attempt;
}

/** Examines one credential. Never rejects. */
export class CredentialExamination {
  readonly #examined: ExaminedCredential;
  readonly #deps: ExaminationDeps;
  readonly #findings: Finding[] = [];
  /** The last response with a challenge. */
  #challenger: UpstreamResponse | undefined;
  #attempts = 0;

  constructor(examined: ExaminedCredential, deps: ExaminationDeps) {
    this.#examined = examined;
    this.#deps = deps;
  }

  async run(): Promise<Finding[]> {
    try {
      await this.#examine();
    } catch (error) {
      const isOver = error === this.#deps.cancellation.reason;
      this.#report(isOver ? this.#notReached() : { ...connectionFinding(error), check: 'credential' });
    }
    return this.#findings;
  }

  async #examine(): Promise<void> {
    const left = [...this.#examined.probes];
    if (!(await this.#examineSites(left))) return;
    const saw = `not tested: ${LIMIT}`;
    for (const { subject } of left) {
      this.#findings.push(about(subject, wrong('access', 'not-examined', saw)));
    }
  }

  /** Removes the examined sites from `left`. Returns false if there is nothing to say about the others. */
  async #examineSites(left: SiteProbe[]): Promise<boolean> {
    const first = await this.#authenticateNext(left);
    if (!('attempt' in first)) {
      this.#report({ ...first, check: 'credential' });
      return false;
    }
    let last = first;
    // The credential may be good, and only this site closed to it: another site can show that.
    const denied: Authenticated[] = [];
    for (;;) {
      const unproven = unprovenFinding(last.attempt.response, this.#deps.address);
      if (unproven === undefined) break;
      denied.push(last);
      const mayGoOn = left.length > 0 && this.#attempts < MAX_ATTEMPTS;
      const next = mayGoOn ? await this.#authenticateNext(left) : unproven;
      if (!('attempt' in next)) {
        this.#report(unproven);
        return true;
      }
      last = next;
    }
    const { siteProbe, nonce, attempt } = last;
    if (!this.#judge(last, denied)) return false;
    if (this.#deps.noncePolicy === 'single-use') await this.#tryOthers(nonce, left);
    else if (this.#attempts < MAX_ATTEMPTS) await this.#useAgain(nonce, attempt.nextnonce, siteProbe, left);
    else this.#report(fine('nonce', `not used again: ${LIMIT}`));
    return true;
  }

  /** The time that all credentials of the deployment share is over, which says nothing against this one. */
  #notReached(): Finding {
    const isAccepted = this.#findings.some(({ check }) => check === 'credential');
    const saw = 'not tested: the time for all credentials of the deployment was over';
    return wrong(isAccepted ? 'nonce' : 'credential', 'not-reached', saw);
  }

  /** Returns a nonce that the upstream issues now, or the finding that it issues none. */
  async #ask(siteProbe: SiteProbe): Promise<Nonce | Finding> {
    const { connections, algorithms, cancellation } = this.#deps;
    const response = await connections.send(unsigned(requestOf(siteProbe, cancellation)));
    const challenge = this.#choose(response);
    const finding = challengeFinding(response, algorithms);
    return challenge === undefined || finding.mark !== 'ok' ? finding : this.#nonceFor(challenge, response);
  }

  /** Sends the request of the next site; returns the finding if the upstream issues no nonce for it. */
  async #authenticateNext(left: SiteProbe[]): Promise<Authenticated | Finding> {
    const [siteProbe] = left;
    if (siteProbe === undefined) throw new TypeError('a credential needs at least one request');
    const asked = await this.#ask(siteProbe);
    if (!(asked instanceof Nonce)) return asked;
    left.shift();
    return this.#authenticate(asked, siteProbe);
  }

  /** Retries once if the nonce is refused, not the credential, as the gateway does. */
  async #authenticate(nonce: Nonce, siteProbe: SiteProbe): Promise<Authenticated> {
    const attempt = await this.#attempt(nonce, siteProbe);
    const isLast = this.#attempts >= MAX_ATTEMPTS;
    const fresh = isLast ? undefined : await this.#freshNonce(nonce, attempt.response, siteProbe);
    if (fresh === undefined) return { siteProbe, nonce, attempt };
    return { siteProbe, nonce: fresh, attempt: await this.#attempt(fresh, siteProbe) };
  }

  /** Returns the nonce to answer after a refusal that says nothing about the credential; undefined if there is none. */
  async #freshNonce(
    refused: Nonce,
    response: UpstreamResponse,
    siteProbe: SiteProbe,
  ): Promise<Nonce | undefined> {
    const challenge = this.#choose(response);
    if (challenge?.stale === true) return this.#nonceFor(challenge, response);
    if (challenge === undefined) return undefined;
    if (challenge.nonce === refused.challenge.nonce) return this.#askForOther(challenge.nonce, siteProbe);
    // If the server issues the nonce of its refusal once more, it gives one to all who ask within a second, and the
    // second of the refused one, which another client may have used, has just ended.
    const asked = await this.#ask(siteProbe);
    return asked instanceof Nonce && asked.challenge.nonce === challenge.nonce ? asked : undefined;
  }

  /** Returns a nonce that is not this one; undefined if none comes. */
  async #askForOther(known: string, siteProbe: SiteProbe): Promise<Nonce | undefined> {
    const nonceOf = (asked: Nonce | Finding) => (asked instanceof Nonce ? asked.challenge.nonce : undefined);
    const asked = await anotherNonce(known, () => this.#ask(siteProbe), nonceOf);
    return asked instanceof Nonce && asked.challenge.nonce !== known ? asked : undefined;
  }

  /** True if the credential works, so that it can be used for more requests. `denied`: those before it. */
  #judge(last: Authenticated, denied: readonly Authenticated[]): boolean {
    const { response } = last.attempt;
    const unavailable = unavailableFinding('credential', response.status);
    if (unavailable !== undefined) {
      this.#report(unavailable);
      return false;
    }
    if (response.status !== 401 || !offersScheme(challengesOf(response), 'digest')) {
      this.#report(fine('credential', 'accepted'));
      for (const { attempt, siteProbe } of [...denied, last]) {
        this.#findings.push(this.#access(attempt.response, siteProbe));
      }
      return true;
    }
    if (this.#choose(response)?.stale === true) {
      this.#report(wrong('nonce', 'nonce-always-stale', 'refused as stale although new'));
    } else {
      this.#report(
        wrong('credential', 'credential-refused', 'refused with HTTP 401 although the nonce was new'),
      );
    }
    return false;
  }

  /**
   * Uses the nonce again, for the next site if there is one; then examines the remaining sites up to the
   * limit, and removes them from `left`.
   */
  async #useAgain(nonce: Nonce, nextnonce: boolean, first: SiteProbe, left: SiteProbe[]): Promise<void> {
    const [next] = left;
    const { response } = await this.#attempt(nonce, next ?? first);
    if (response.status !== 401) {
      this.#report(reuseFinding(response.status, nextnonce));
      this.#reportNext(left, response);
      if (left[0] !== undefined && this.#attempts < MAX_ATTEMPTS) {
        const third = await this.#attempt(nonce, left[0]);
        if (third.response.status !== 401) this.#reportNext(left, third.response);
      }
    } else {
      const again = next && (await this.#tryAgain(nonce, response, next));
      // A site that refuses a new nonce, too, is at fault, and not the nonce.
      if (again?.status !== 401) this.#report(nonceFinding(false, nextnonce));
      if (again !== undefined) this.#reportNext(left, again);
    }
  }

  /**
   * Examines the other sites up to the limit, each with a nonce of its own, since the upstream counts the second use of one
   * as a failed log-in; removes them from `left`.
   */
  async #tryOthers(used: Nonce, left: SiteProbe[]): Promise<void> {
    this.#report(fine('nonce', 'not used again: digest.noncePolicy is single-use'));
    let last = used.challenge.nonce;
    while (left[0] !== undefined && this.#attempts < MAX_ATTEMPTS) {
      const asked = await this.#ask(left[0]);
      if (!(asked instanceof Nonce) || asked.challenge.nonce === last) return;
      last = asked.challenge.nonce;
      const { response } = await this.#attempt(asked, left[0]);
      if (this.#choose(response)?.stale === true) return;
      this.#reportNext(left, response);
    }
  }

  /** The response of a site to a nonce of its own, after it refused this one; undefined: none that says anything of it. */
  async #tryAgain(
    refused: Nonce,
    response: UpstreamResponse,
    siteProbe: SiteProbe,
  ): Promise<UpstreamResponse | undefined> {
    if (this.#attempts >= MAX_ATTEMPTS) return undefined;
    const known = refused.challenge.nonce;
    const challenge = this.#choose(response);
    const other =
      challenge !== undefined && challenge.nonce !== known
        ? this.#nonceFor(challenge, response)
        : await this.#askForOther(known, siteProbe);
    if (other === undefined) return undefined;
    const { response: again } = await this.#attempt(other, siteProbe);
    return this.#choose(again)?.stale === true ? undefined : again;
  }

  /** Removes the examined site from the list and reports its finding. */
  #reportNext(left: SiteProbe[], response: UpstreamResponse): void {
    const siteProbe = left.shift();
    if (siteProbe !== undefined) this.#findings.push(this.#access(response, siteProbe));
  }

  async #attempt(nonce: Nonce, siteProbe: SiteProbe): Promise<Attempt> {
    if (this.#attempts >= MAX_ATTEMPTS) throw new RangeError('too many attempts');
    this.#attempts += 1;
    const { connections, cancellation } = this.#deps;
    const request = requestOf(siteProbe, cancellation);
    const attempt = nonce.begin(monotonicClock.now());
    if (attempt === undefined) throw new RangeError('the nonce is exhausted');
    const { nc } = attempt;
    let nextnonce = false;
    const sent = { uri: request.target, nc };
    const message = signed(request, attempt, undefined, undefined, this.#challenger);
    const response = await connections.send(message, (head) =>
      proveResponse(head, 'authentication-info', nonce, sent, (next) => {
        nextnonce = next !== undefined;
      }),
    );
    return { response, nextnonce };
  }

  #access(response: UpstreamResponse, { site, subject }: SiteProbe): Finding {
    if (this.#choose(response) !== undefined) {
      const saw =
        'refused with HTTP 401 although the nonce was new, and another site accepted the credential';
      return about(subject, wrong('access', 'site-refused', saw));
    }
    const finding = accessFinding(response, site !== undefined, this.#deps.address);
    return about(subject, finding);
  }

  #choose(response: UpstreamResponse): Challenge | undefined {
    if (response.status !== 401) return undefined;
    const { credential } = this.#examined;
    return chooseFor(credential, parseChallenges(challengesOf(response)), this.#deps.algorithms);
  }

  #nonceFor(challenge: Challenge, response: UpstreamResponse): Nonce {
    this.#challenger = response;
    const cookies = cookiePairs(fieldValues(response.headers, 'set-cookie'));
    return new Nonce({ challenge, cookies }, this.#examined.credential, {
      cnonce: randomBytes(16).toString('hex'),
      obtainedAt: monotonicClock.now(),
    });
  }

  #report(finding: Finding): void {
    this.#findings.push(about(this.#examined.label, finding));
  }
}

/** Judges a second use of a nonce that was not refused. */
function reuseFinding(status: number, nextnonce: boolean): Finding {
  return unavailableFinding('nonce', status) ?? nonceFinding(true, nextnonce);
}

function nonceFinding(reusable: boolean, nextnonce: boolean): Finding {
  const facts = { reusable, nextnonce };
  if (reusable) {
    const next = nextnonce ? 'nextnonce is offered' : 'no nextnonce';
    return fine('nonce', `accepted a second time, ${next}`, facts);
  }
  if (nextnonce) return fine('nonce', 'serves once, and nextnonce names the next one', facts);
  return wrong('nonce', 'nonce-not-reusable', 'refused the second time, no nextnonce', facts);
}

function requestOf({ probe }: SiteProbe, cancellation: Cancellation): UpstreamRequest {
  const headers = ['user-agent', 'digest-gateway-doctor'];
  const budget = new AttemptBudget(probe.method);
  return { ...probe, headers, body: NO_BODY, client: '', cancellation, budget };
}
