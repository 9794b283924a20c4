import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { Standing } from './standing.ts';
import type { Passage, VerdictGate } from './verdict-gate.ts';

/** A challenge that waited longer, in milliseconds, is not answered any more: it may have expired unseen. */
const FRESH_MS = 100;

export interface DoubtParts {
  readonly standing: Standing;
  readonly gate: VerdictGate;
  readonly clock: Clock;
}

/** One request's part in finding out whether the upstream takes a credential. */
export class Doubt {
  readonly #parts: DoubtParts;
  #raised = false;
  #settled = false;
  #leads = false;

  constructor(parts: DoubtParts) {
    this.#parts = parts;
  }

  /** A nonce that had served was refused, and not for its age as far as the upstream says. */
  raise(): void {
    this.#raised = true;
  }

  /**
   * Waits, if there is any doubt, while another request finds out; once. True: the challenge can be answered;
   * false: ask for another, since others were there meanwhile or it may be too old.
   */
  async settle({ opaque }: Challenge, cancellation: Cancellation): Promise<boolean> {
    const { gate, standing, clock } = this.#parts;
    if (this.#settled || (standing.proven && !this.#raised)) return true;
    const since = clock.now();
    const passage = await gate.enter(cancellation);
    this.#settled = true;
    this.#leads = passage === 'lead';
    // An upstream that keeps state by opaque refuses a right answer when others were there first.
    return this.#leads || (opaque === undefined && clock.now() - since < FRESH_MS);
  }

  /** Tells those who wait, if it is this request that they wait for. */
  conclude(verdict: Exclude<Passage, 'lead'>): void {
    if (this.#leads) this.#parts.gate.conclude(verdict);
    this.#leads = false;
  }

  /** The request is over, whatever it found out. */
  leave(): void {
    if (this.#leads) this.#parts.gate.leave();
    this.#leads = false;
  }
}
