import { randomBytes } from 'node:crypto';
import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import { Nonce } from '../challenges/nonce.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { chooseFor } from '../digest/authorization.ts';
import { type Challenge, offersScheme, parseChallenges } from '../digest/challenge.ts';
import { onProvenHead } from '../handshake/proof.ts';
import { NO_BODY, type UpstreamRequest } from '../handshake/request.ts';
import { signed, unsigned } from '../handshake/signing.ts';
import { connectionFinding } from './connection-findings.ts';
import type { Answer, Contact } from './contact.ts';
import { about, type Finding, fine, wrong } from './finding.ts';
import type { Probe } from './probe.ts';
import { accessFinding, challengeFinding, isUnavailable } from './response-findings.ts';

/**
 * Limit of authenticated attempts with one credential: after more failures an upstream may lock out the
 * address, and with it the gateway.
 */
const MAX_ATTEMPTS = 3;

export interface ExaminedCredential {
  /** Name of the credential in findings. */
  readonly label: string;
  readonly credential: Credential;
  /** A request for each of its sites, or a single one; never empty. */
  readonly places: readonly Place[];
}

export interface Place {
  /** Undefined if the deployment has no sites. */
  readonly site: string | undefined;
  readonly probe: Probe;
}

export interface ExaminationDeps {
  readonly contact: Contact;
  readonly algorithms: readonly AlgorithmName[];
  /** The address that the upstream is expected to see. */
  readonly address: string | undefined;
  readonly cancellation: Cancellation;
  readonly clock: Clock;
}

/** The response to an authenticated request. */
interface Attempt {
  readonly answer: Answer;
  readonly nextnonce: boolean;
}

/** Examines one credential. Never rejects. */
export class CredentialExamination {
  readonly #examined: ExaminedCredential;
  readonly #deps: ExaminationDeps;
  readonly #findings: Finding[] = [];
  #attempts = 0;

  constructor(examined: ExaminedCredential, deps: ExaminationDeps) {
    this.#examined = examined;
    this.#deps = deps;
  }

  async run(): Promise<Finding[]> {
    try {
      await this.#walk();
    } catch (error) {
      this.#tell({ ...connectionFinding(error), check: 'credential' });
    }
    return this.#findings;
  }

  async #walk(): Promise<void> {
    const [first, ...others] = this.#examined.places;
    if (first === undefined) throw new TypeError('a credential is for one place at least');
    const { contact, algorithms, cancellation } = this.#deps;
    const asked = await contact.ask(unsigned(requestOf(first)), cancellation);
    const challenge = this.#choose(asked);
    if (challenge === undefined) {
      this.#tell({ ...challengeFinding(asked, algorithms), check: 'credential' });
      return;
    }
    const { nonce, attempt } = await this.#authenticate(this.#nonceFor(challenge, asked), first);
    if (this.#judge(attempt.answer, first)) await this.#useAgain(nonce, attempt.nextnonce, first, others);
  }

  /** Retries once if a new nonce is refused as stale, as the gateway does. */
  async #authenticate(nonce: Nonce, place: Place): Promise<{ nonce: Nonce; attempt: Attempt }> {
    const attempt = await this.#attempt(nonce, place);
    const again = this.#choose(attempt.answer);
    if (again?.stale !== true) return { nonce, attempt };
    const fresh = this.#nonceFor(again, attempt.answer);
    return { nonce: fresh, attempt: await this.#attempt(fresh, place) };
  }

  /** True if the credential works, so that it can be used for more requests. */
  #judge(answer: Answer, place: Place): boolean {
    if (answer.kind === 'answered' && isUnavailable(answer.status)) {
      this.#tell(wrong('credential', 'upstream-unavailable', `HTTP ${answer.status}`));
      return false;
    }
    if (answer.kind === 'answered' || !offersScheme(answer.lines, 'digest')) {
      this.#tell(fine('credential', 'accepted'));
      this.#findings.push(this.#access(answer, place));
      return true;
    }
    if (this.#choose(answer)?.stale === true) {
      this.#tell(wrong('nonce', 'nonce-always-stale', 'refused as stale although new'));
    } else {
      this.#tell(
        wrong('credential', 'credential-refused', 'refused with HTTP 401 although the nonce was new'),
      );
    }
    return false;
  }

  /**
   * Uses the nonce again, for the next site if there is one; then examines the remaining sites up to the
   * limit.
   */
  async #useAgain(nonce: Nonce, nextnonce: boolean, first: Place, others: readonly Place[]): Promise<void> {
    const left = [...others];
    const { answer } = await this.#attempt(nonce, left[0] ?? first);
    const reusable = answer.kind === 'answered';
    this.#tell(nonceFinding(reusable, nextnonce));
    if (reusable) this.#tellOfNext(left, answer);
    if (reusable && left.length > 0 && this.#attempts < MAX_ATTEMPTS) {
      const third = await this.#attempt(nonce, left[0] ?? first);
      if (third.answer.kind === 'answered') this.#tellOfNext(left, third.answer);
    }
    const saw = `not tested: at most ${MAX_ATTEMPTS} attempts with one credential`;
    for (const { site = '' } of left) {
      this.#findings.push(about(site, wrong('access', 'not-examined', saw)));
    }
  }

  /** Removes the examined site from the list and reports its finding. */
  #tellOfNext(left: Place[], answer: Answer): void {
    const place = left.shift();
    if (place !== undefined) this.#findings.push(this.#access(answer, place));
  }

  async #attempt(nonce: Nonce, place: Place): Promise<Attempt> {
    if (this.#attempts >= MAX_ATTEMPTS) throw new RangeError('too many attempts');
    this.#attempts += 1;
    const { contact, cancellation, clock } = this.#deps;
    const request = requestOf(place);
    const attempt = nonce.begin(clock.now());
    if (attempt === undefined) throw new RangeError('the nonce is exhausted');
    const { nc } = attempt;
    let nextnonce = false;
    const onHead = onProvenHead(nonce, { uri: request.target, nc }, (_status, next) => {
      nextnonce = next !== undefined;
    });
    const answer = await contact.ask(signed(request, nonce, nc), cancellation, onHead);
    return { answer, nextnonce };
  }

  #access(answer: Answer, { site }: Place): Finding {
    const finding = accessFinding(answer, site !== undefined, this.#deps.address);
    return about(site ?? this.#examined.label, finding);
  }

  #choose(answer: Answer): Challenge | undefined {
    if (answer.kind === 'answered') return undefined;
    const { credential } = this.#examined;
    return chooseFor(credential, parseChallenges(answer.lines), this.#deps.algorithms);
  }

  #nonceFor(challenge: Challenge, answer: Answer): Nonce {
    const cookies = answer.kind === 'challenged' ? cookiePairs(answer.setCookies) : [];
    return new Nonce({ challenge, cookies }, this.#examined.credential, {
      cnonce: randomBytes(16).toString('hex'),
      obtainedAt: this.#deps.clock.now(),
      hintMs: undefined,
    });
  }

  #tell(finding: Finding): void {
    this.#findings.push(about(this.#examined.label, finding));
  }
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

function requestOf({ probe }: Place): UpstreamRequest {
  return { ...probe, headers: ['user-agent', 'digest-gateway-doctor'], body: NO_BODY, trace: undefined };
}
