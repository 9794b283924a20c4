import type { LimitSync } from './limit-sync.ts';
import type { LocalLimit } from './local-limit.ts';

/** A limit with its synchronisation; undefined: there is one process only. */
export interface Limited {
  readonly local: LocalLimit;
  readonly sync: LimitSync | undefined;
}

/** The place of one admitted request in its limits. */
export class Permit {
  readonly #parts: readonly Limited[];
  #held = true;

  constructor(parts: readonly Limited[]) {
    this.#parts = parts;
  }

  /** The current RateLimit and RateLimit-Policy, as a flat list. */
  get fields(): readonly string[] {
    return fieldsOf(this.#parts);
  }

  /** The request has ended; only the first call counts. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    for (const { local, sync } of this.#parts) {
      local.release();
      sync?.touch();
    }
  }
}

/** The header fields of draft-ietf-httpapi-ratelimit-headers. */
export function fieldsOf(parts: readonly Limited[]): string[] {
  const policies = parts.map(({ local }) => local.policy);
  const states = parts.map(({ local }) => local.state);
  return ['ratelimit-policy', policies.join(', '), 'ratelimit', states.join(', ')];
}
