import { randomBytes } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import type { Secret } from '../base/secret.ts';
import { fingerprint, type Operator, type Role } from './operators.ts';

/** Bounds of sessions; times in milliseconds. */
export interface SessionBounds {
  readonly idle: number;
  readonly life: number;
  /** Open sessions of people. Those that a token opened do not count: the token works when all are taken. */
  readonly max: number;
}

/** Sessions of one person; a sign-in above it ends the oldest one. */
const MAX_OF_PERSON = 10;
/** Sessions that one token opened; a sign-in above it ends the oldest one. */
const MAX_OF_TOKENS = 100;
const VALUE = /^[\w-]{43}$/;

/** The owner of a session. */
export interface Holder {
  readonly roles: ReadonlySet<Role>;
  /** Undefined: a token opened the session. */
  readonly operator: Operator | undefined;
  readonly idToken?: Secret;
}

export interface Session extends Holder {
  /** Names the session without revealing its cookie. */
  readonly id: string;
  /** When it ends at the latest, and when it was used last, in milliseconds of the clock. */
  readonly endsAt: number;
  usedAt: number;
}

/** The open sessions of the control plane, in memory: a restart ends them. */
export class Sessions {
  readonly #bounds: SessionBounds;
  readonly #clock: Clock;
  /** By id, the oldest first. */
  readonly #open = new Map<string, Session>();

  constructor(bounds: SessionBounds, clock: Clock) {
    this.#bounds = bounds;
    this.#clock = clock;
  }

  /** How many are open. */
  get count(): number {
    this.#dropEnded();
    return this.#open.size;
  }

  /** Opens a session; returns the value of its cookie. Undefined: `max` sessions are open. */
  open(holder: Holder): { readonly value: string; readonly session: Session } | undefined {
    this.#dropEnded();
    const { operator } = holder;
    const own = [...this.#open.values()].filter((each) => isOfSameHolder(each, holder));
    const [oldest] = own;
    if (oldest !== undefined && own.length >= (operator === undefined ? MAX_OF_TOKENS : MAX_OF_PERSON)) {
      this.#open.delete(oldest.id);
    } else if (operator !== undefined && this.#ofPeople() >= this.#bounds.max) return undefined;
    const value = randomBytes(32).toString('base64url');
    const now = this.#clock.now();
    const session = { ...holder, id: fingerprint(value), endsAt: now + this.#bounds.life, usedAt: now };
    this.#open.set(session.id, session);
    return { value, session };
  }

  /** Returns the session of a cookie, which is in use now. Undefined: there is none, or it has ended. */
  find(value: string): Session | undefined {
    // By its hash, so that the time of the lookup says nothing about other cookies.
    const session = VALUE.test(value) ? this.#open.get(fingerprint(value)) : undefined;
    return session !== undefined && this.use(session.id) ? session : undefined;
  }

  /** Notes that a session is in use now. False: it has ended. */
  use(id: string): boolean {
    const session = this.#open.get(id);
    if (session === undefined) return false;
    if (this.#hasEnded(session)) {
      this.#open.delete(id);
      return false;
    }
    session.usedAt = this.#clock.now();
    return true;
  }

  end(id: string): void {
    this.#open.delete(id);
  }

  #ofPeople(): number {
    return [...this.#open.values()].filter(({ operator }) => operator !== undefined).length;
  }

  #dropEnded(): void {
    for (const session of this.#open.values()) if (this.#hasEnded(session)) this.#open.delete(session.id);
  }

  #hasEnded({ endsAt, usedAt }: Session): boolean {
    const now = this.#clock.now();
    return now >= endsAt || now - usedAt >= this.#bounds.idle;
  }
}

/** True for one person, or one token: the holder of the reading token must not end sessions of the other. */
export function isOfSameHolder(one: Holder, other: Holder): boolean {
  if (one.operator?.subject !== other.operator?.subject) return false;
  return one.operator !== undefined || one.roles === other.roles;
}
