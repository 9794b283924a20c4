import type { Clock } from '../base/clock.ts';
import { METHOD_REFUSED } from '../handshake/credential-health.ts';
import type { CredentialVersion, Question, Reply } from './credential-version.ts';
import type { Questions } from './questions.ts';
import type { Versions } from './versions.ts';

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
