import type { NoncePolicy } from './store.ts';

/** A nonce is young below this age, in milliseconds … */
const YOUNG_MS = 1_000;
/** … and below this share of the age that others reach. */
const EARLY = 0.5;
/** So many young nonces refused within the interval move the policy one step. */
const STRIKES = 3;
const INTERVAL_MS = 30_000;
/** Nothing expires so soon, in milliseconds. */
const BRAND_NEW_MS = 250;

const NEXT: Readonly<Record<NoncePolicy, NoncePolicy>> = {
  shared: 'exclusive',
  exclusive: 'single-use',
  'single-use': 'single-use',
};

/** A refusal of a nonce that was used before. */
export interface Refusal {
  /** Of the nonce, in milliseconds. */
  readonly ageMs: number;
  /** Answers to the nonce that were accepted. */
  readonly uses: number;
  /** Whether other requests with the nonce were under way. */
  readonly contested: boolean;
  /** Whether answers to it carry a count, nc. */
  readonly counted: boolean;
  /** The oldest age at which a nonce was accepted, in milliseconds. */
  readonly oldestAcceptedMs: number;
  /** How long nonces live, in milliseconds; undefined: not known. */
  readonly lifetimeMs: number | undefined;
}

export interface ToleranceOptions {
  /** `auto`: learned from refusals. */
  readonly policy: NoncePolicy | 'auto';
  /** Milliseconds on a clock that never goes back. */
  readonly now: () => number;
  /** Told of a step that was learned here. */
  readonly onStep: (policy: NoncePolicy) => void;
}

/** What an upstream lets one do with its nonces. */
export class Tolerance {
  readonly #options: ToleranceOptions;
  #policy: NoncePolicy;
  #strikes: number[] = [];

  constructor(options: ToleranceOptions) {
    this.#options = options;
    this.#policy = options.policy === 'auto' ? 'shared' : options.policy;
  }

  get policy(): NoncePolicy {
    return this.#policy;
  }

  /** What another process learned, or this one before its start. */
  told(policy: NoncePolicy): void {
    if (this.#options.policy === 'auto') this.#policy = policy;
  }

  /** It is another upstream. */
  forget(): void {
    if (this.#options.policy === 'auto') this.#policy = 'shared';
    this.#strikes = [];
  }

  /** A nonce was refused: one that was too young for it to be its age counts against the policy. */
  refused(refusal: Refusal): void {
    if (this.#options.policy !== 'auto' || this.#policy === 'single-use' || !isYoung(refusal)) return;
    const now = this.#options.now();
    this.#strikes = [...this.#strikes.filter((at) => now - at < INTERVAL_MS), now];
    if (this.#strikes.length < (isOvertaken(refusal) ? 1 : STRIKES)) return;
    this.#strikes = [];
    this.#policy = NEXT[this.#policy];
    this.#options.onStep(this.#policy);
  }
}

/** A brand-new nonce with a count, in use by several at once: one nc came before another, and that is enough. */
function isOvertaken({ ageMs, contested, counted }: Refusal): boolean {
  return contested && counted && ageMs < BRAND_NEW_MS;
}

/** Too young for its age to be the reason, so that the reason is the way in which it was used. */
function isYoung({ ageMs, uses, contested, oldestAcceptedMs, lifetimeMs }: Refusal): boolean {
  if (ageMs < EARLY * oldestAcceptedMs) return true;
  return ageMs < YOUNG_MS && ageMs < EARLY * (lifetimeMs ?? YOUNG_MS / EARLY) && (uses === 1 || contested);
}
