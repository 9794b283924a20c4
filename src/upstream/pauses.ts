import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';

/** The scope of a pause: the deployment, or requests with one credential. */
export interface PauseScope {
  /** Undefined: the whole deployment. */
  readonly credential: string | undefined;
  /** The outcome that paused it. */
  readonly outcome: string;
}

/** A pause that has not ended. */
export interface Pause extends PauseScope {
  readonly remainingMs: number;
}

/** A pause began or ended. */
export interface PauseNews extends PauseScope {
  readonly deployment: string;
  /** The milliseconds that it is to take; 0: it ended. */
  readonly ms: number;
}

interface Entry extends PauseScope {
  /** On the clock of the process, in milliseconds. */
  readonly until: number;
}

/** The key of the deployment as a whole; no credential has this name. */
const DEPLOYMENT = '';

/** Times in which one deployment gets no requests, since a response said so. */
export class Pauses {
  readonly #deployment: string;
  readonly #clock: Clock;
  readonly #onPause: (news: PauseNews) => void;
  /** By credential. An entry that has ended stays until the next request, which reports its end. */
  readonly #entries = new Map<string, Entry>();

  constructor(deployment: string, clock: Clock, onPause: (news: PauseNews) => void) {
    this.#deployment = deployment;
    this.#clock = clock;
    this.#onPause = onPause;
  }

  /** Begins a pause of `ms` milliseconds, or extends one that would end earlier. */
  begin(scope: PauseScope, ms: number): void {
    if (ms <= 0) return;
    const now = this.#clock.now();
    const key = scope.credential ?? DEPLOYMENT;
    this.#forgetEnded(now);
    const known = this.#entries.get(key);
    if (known !== undefined && known.until >= now + ms) return;
    this.#entries.set(key, { ...scope, until: now + ms });
    if (known === undefined) this.#tell(scope, ms);
  }

  /**
   * Returns the error for a request with this credential, `upstream-paused` with the rest of the pause as its
   * Retry-After; undefined: nothing pauses it.
   */
  refusalOf(credential: string): GatewayError | undefined {
    if (this.#entries.size === 0) return undefined;
    const now = this.#clock.now();
    this.#forgetEnded(now);
    const found = [this.#entries.get(DEPLOYMENT), this.#entries.get(credential)].filter(
      (each) => each !== undefined,
    );
    if (found.length === 0) return undefined;
    const longest = found.reduce((a, b) => (a.until >= b.until ? a : b));
    return paused(longest.outcome, longest.until - now);
  }

  /** The pauses that have not ended. */
  get current(): Pause[] {
    const now = this.#clock.now();
    return Array.from(this.#entries.values(), ({ credential, outcome, until }) => ({
      credential,
      outcome,
      remainingMs: until - now,
    })).filter(({ remainingMs }) => remainingMs > 0);
  }

  #forgetEnded(now: number): void {
    for (const [key, entry] of this.#entries) {
      if (entry.until > now) continue;
      this.#entries.delete(key);
      this.#tell(entry, 0);
    }
  }

  #tell({ credential, outcome }: PauseScope, ms: number): void {
    this.#onPause({ deployment: this.#deployment, credential, outcome, ms });
  }
}

function paused(outcome: string, ms: number): GatewayError {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  return new GatewayError(
    'upstream-paused',
    `A response of the upstream (outcome ${outcome}) paused requests to it. Send the request again after ${seconds} s.`,
    undefined,
    { retryAfter: seconds },
  );
}
