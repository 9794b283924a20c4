import type { LimitSync } from './limit-sync.ts';
import type { LocalLimit } from './local-limit.ts';

/** A limit with its synchronisation; undefined: there is one process only. */
export interface Limited {
  readonly local: LocalLimit;
  readonly sync: LimitSync | undefined;
}

/** The place of one admitted request in its limits. */
export class Permit {
  readonly #first: Limited;
  readonly #second: Limited | undefined;
  #held = true;

  constructor(first: Limited, second: Limited | undefined) {
    this.#first = first;
    this.#second = second;
  }

  /** The current RateLimit and RateLimit-Policy, as a flat list. */
  get fields(): readonly string[] {
    return fieldsOf(this.#first, this.#second);
  }

  /** The request has ended; only the first call counts. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    releaseOne(this.#first);
    if (this.#second !== undefined) releaseOne(this.#second);
  }
}

function releaseOne({ local, sync }: Limited): void {
  local.release();
  sync?.touch();
}

/** The header fields of draft-ietf-httpapi-ratelimit-headers. */
export function fieldsOf({ local: first }: Limited, second: Limited | undefined): string[] {
  const { policy, state } = first;
  if (second === undefined) return ['ratelimit-policy', policy, 'ratelimit', state];
  const { local } = second;
  return ['ratelimit-policy', `${policy}, ${local.policy}`, 'ratelimit', `${state}, ${local.state}`];
}
