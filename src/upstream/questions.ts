import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { METHOD_REFUSED } from '../handshake/account.ts';
import { upstreamTooSlow } from '../handshake/errors.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { CredentialCircuit } from './credential-circuit.ts';
import type { CredentialVersion, Question, Reply } from './credential-version.ts';
import type { Versions } from './versions.ts';

/** Requests of the gateway's own about the versions of one credential: where they go, and for how long. */
export class Questions {
  readonly #circuit: CredentialCircuit;
  readonly #versions: Versions;
  /** Target of the last GET of a client that was asked for authentication and succeeded; undefined: none was. */
  lastTarget: string | undefined;

  constructor(circuit: CredentialCircuit, versions: Versions) {
    this.#circuit = circuit;
    this.#versions = versions;
  }

  /** Does something with a deadline of its own: twice what one response may take. */
  async withDeadline<T>(work: (cancellation: Cancellation) => Promise<T>): Promise<T> {
    const cancellation = new Cancellation();
    const limit = 2 * (this.#options?.timeouts.response ?? 0);
    const timer = setTimeout(() => cancellation.cancel(upstreamTooSlow(limit)), limit);
    try {
      return await work(cancellation);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Counts the attempts that the upstream has refused. */
  count(reply: Reply): void {
    if (reply.kind === 'refused') this.#circuit.attempted(reply.attempts);
  }

  /**
   * Asks whether the upstream accepts a version, at a neutral target: whether it accepts a target of a client says
   * nothing of the credential. If that shows nothing, once more on a new connection with GET, since not every server
   * supports HEAD; if the neutral target wants no authentication, with the path of `target`. `inHand`: a response whose
   * challenge is answered first.
   */
  async probe(
    version: CredentialVersion,
    target: string,
    cancellation: Cancellation,
    inHand?: UpstreamResponse,
  ): Promise<Reply> {
    const known = this.#knownPath;
    const method = this.#configured?.method;
    const head: Question = { method: method ?? 'HEAD', target: known ?? this.#neutralTarget, cancellation };
    const get = { ...head, method: method ?? 'GET', options: { freshConnection: true } };
    if (inHand !== undefined) {
      const reply = await version.ask({ ...head, options: { challenge: inHand } });
      if (reply.kind !== 'unclear') return reply;
    }
    // The state of a connection must not speak against a version that was accepted.
    const options = { freshConnection: version.health.accepted };
    const first = await version.ask({ ...head, options });
    if (first.kind !== 'unclear') return first;
    const second = await version.ask(get);
    if (second.kind !== 'unclear' || !second.isUnprotected || known !== undefined) return second;
    return version.ask({ ...get, target: pathOf(target) });
  }

  /** Does something with requests where the version in use has succeeded, as far as is known, the preferred one first. */
  ahead<T>(work: (questions: readonly Question[]) => Promise<T>): Promise<T> {
    const configured = this.#configured;
    const target = configured?.path ?? this.lastTarget ?? this.#neutralTarget;
    const methods = configured === undefined ? ['HEAD', 'GET'] : [configured.method];
    return this.withDeadline((cancellation) =>
      work(methods.map((method) => ({ method, target, cancellation }))),
    );
  }

  /** Obtains a nonce that takes the place of this one; undefined: no path for that is known. */
  async renew(version: CredentialVersion, replaces: Nonce): Promise<Reply | undefined> {
    const target = this.#knownPath;
    if (target === undefined) return undefined;
    const method = this.#configured?.method ?? 'HEAD';
    return this.withDeadline((cancellation) => version.renew(replaces, { method, target, cancellation }));
  }

  /** Of the transport that carries them; undefined: none can be asked. */
  get #options() {
    return this.#versions.latestTransport?.options;
  }

  get #neutralTarget(): string {
    return this.#options?.neutralTarget ?? '/';
  }

  /** The configured request that renews nonces; undefined: there is none. */
  get #configured() {
    const renewAhead = this.#options?.renewAhead;
    return typeof renewAhead === 'object' ? renewAhead : undefined;
  }

  get #knownPath(): string | undefined {
    return this.#configured?.path ?? (this.lastTarget === undefined ? undefined : pathOf(this.lastTarget));
  }
}

function pathOf(target: string): string {
  return target.split('?', 1)[0] ?? '';
}

/** Statuses that come and go, so that they say nothing of a version. */
const TRANSIENT: ReadonlySet<number> = new Set([0, 429, 502, 503, 504]);

/** Between two trials of a candidate whose result was unclear, in milliseconds: first, and at most. */
const INTERVAL_MS = 1_000;
const MAX_INTERVAL_MS = 60_000;

/** `worse`: the upstream accepts its Digest, and fails it where it serves the version in use. */
export type TrialResult =
  | Extract<Reply, { readonly kind: 'refused' }>
  | { readonly kind: 'accepted' | 'worse' | 'unclear' };

type Asked = Pick<CredentialVersion, 'ask'>;

/**
 * Finds out whether a new version can take the place of the one in use, with requests of the gateway's own: it can if its
 * response is a success, or of the same class as that of the version in use. `questions`: the first whose method the
 * upstream takes counts.
 */
export async function tryCandidate(
  candidate: Asked,
  inUse: Asked,
  questions: readonly Question[],
): Promise<TrialResult> {
  for (const question of questions) {
    const reply = await candidate.ask(question);
    if (reply.kind === 'refused') return reply;
    if (!METHOD_REFUSED.has(reply.status)) return { kind: await compare(reply, inUse, question) };
  }
  return { kind: 'unclear' };
}

async function compare(
  { kind, status }: Exclude<Reply, { readonly kind: 'refused' }>,
  inUse: Asked,
  question: Question,
): Promise<'accepted' | 'worse' | 'unclear'> {
  // Without a question for authentication, a success says nothing.
  if (classOf(status) === 2) return kind;
  if (TRANSIENT.has(status)) return 'unclear';
  const other = await inUse.ask(question);
  if (other.kind === 'refused') return 'unclear';
  if (classOf(other.status) === 2) return 'worse';
  const isSame = classOf(other.status) === classOf(status) && status < 500;
  return isSame ? kind : 'unclear';
}

function classOf(status: number): number {
  return Math.floor(status / 100);
}

/** Tries new versions of a credential in the background, one at a time, while the version in use serves requests. */
export class Trials {
  readonly #versions: Versions;
  readonly #questions: Questions;
  readonly #clock: Clock;
  #isBusy = false;
  /** When a candidate may be tried again whose result was unclear. */
  #next = Number.NEGATIVE_INFINITY;
  #intervalMs = INTERVAL_MS;

  constructor(versions: Versions, questions: Questions, clock: Clock) {
    this.#versions = versions;
    this.#questions = questions;
    this.#clock = clock;
  }

  /** The sources of the credential have changed: candidates are due at once. */
  expedite(): void {
    this.#next = Number.NEGATIVE_INFINITY;
    this.#intervalMs = INTERVAL_MS;
  }

  /** Tries the candidates that are due, if the version in use is accepted. */
  async run(): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      for (;;) {
        const candidate = this.#due();
        if (candidate === undefined || !(await this.#decide(candidate))) return;
      }
    } finally {
      this.#isBusy = false;
    }
  }

  #due(): CredentialVersion | undefined {
    const { rotation, inUse } = this.#versions;
    if (!inUse.health.accepted || inUse.health.inDoubt || this.#clock.now() < this.#next) return undefined;
    return rotation.candidates.find(({ health }) => !health.refused);
  }

  /** False: nothing was found out. */
  async #decide(candidate: CredentialVersion): Promise<boolean> {
    const { rotation, shared, inUse } = this.#versions;
    if (rotation.isNext(candidate) && !(await shared.claim(candidate))) return false;
    const result = await this.#questions.ahead((questions) => tryCandidate(candidate, inUse, questions));
    if (result.kind === 'unclear') {
      this.#next = this.#clock.now() + this.#intervalMs;
      this.#intervalMs = Math.min(2 * this.#intervalMs, MAX_INTERVAL_MS);
      return false;
    }
    this.#intervalMs = INTERVAL_MS;
    if (rotation.stateOf(candidate) !== 'candidate') return true;
    this.#versions.note('reply', [candidate], { by: 'trial', result: result.kind });
    if (result.kind === 'refused') {
      this.#questions.count(result);
      this.#versions.refuse(candidate, result.attempt, 'trial');
    } else if (result.kind === 'worse') this.#versions.reject(candidate);
    else this.#versions.promote(candidate, 'trial');
    return true;
  }
}
