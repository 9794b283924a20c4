import { randomBytes } from 'node:crypto';
import type { Clock } from '../base/clock.ts';

/** How long an action waits for its confirmation, in milliseconds. */
export const VALID_MS = 60_000;
/** Actions of one session, and of all sessions, that wait at the same time. */
const OF_SESSION = 8;
const IN_ALL = 64;

interface Pending<T> {
  readonly session: string;
  readonly until: number;
  readonly value: T;
}

/**
 * Actions that wait for a confirmation. Each has an unguessable id, valid once, for a minute, for the session that began
 * it.
 */
export class Confirmations<T> {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #pending = new Map<string, Pending<T>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Keeps a value until it is confirmed; returns its id. Undefined: too many wait. */
  add(session: string, value: T): string | undefined {
    this.#dropExpired();
    const own = [...this.#pending.values()].filter((each) => each.session === session).length;
    if (own >= OF_SESSION || this.#pending.size >= IN_ALL) return undefined;
    const id = randomBytes(24).toString('base64url');
    this.#pending.set(id, { session, until: this.#clock.now() + VALID_MS, value });
    return id;
  }

  /** Takes the value of this id, which no longer waits. Undefined: it is unknown, expired, or of another session. */
  take(session: string, id: string): T | undefined {
    this.#dropExpired();
    const found = this.#pending.get(id);
    if (found?.session !== session) return undefined;
    this.#pending.delete(id);
    return found.value;
  }

  #dropExpired(): void {
    const now = this.#clock.now();
    for (const [id, { until }] of this.#pending) {
      if (until > now) return;
      this.#pending.delete(id);
    }
  }
}
