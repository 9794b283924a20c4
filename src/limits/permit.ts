import type { Allowance } from './allowance.ts';
import type { Settling } from './settling.ts';

/** An allowance, and what settles it with other processes; undefined: there are none. */
export interface Limited {
  readonly allowance: Allowance;
  readonly settling: Settling | undefined;
}

/** A request that limits let pass. */
export class Permit {
  readonly #parts: readonly Limited[];
  #held = true;

  constructor(parts: readonly Limited[]) {
    this.#parts = parts;
  }

  /** RateLimit and RateLimit-Policy as they are now, flat. */
  get fields(): readonly string[] {
    return fieldsOf(this.#parts);
  }

  /** The request has ended; only the first call counts. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    for (const { allowance, settling } of this.#parts) {
      allowance.release();
      settling?.touch();
    }
  }
}

/** The fields of draft-ietf-httpapi-ratelimit-headers: what is allowed, and what is left of it. */
export function fieldsOf(parts: readonly Limited[]): string[] {
  const policies = parts.map(({ allowance }) => allowance.policy);
  const states = parts.map(({ allowance }) => allowance.state);
  return ['ratelimit-policy', policies.join(', '), 'ratelimit', states.join(', ')];
}
