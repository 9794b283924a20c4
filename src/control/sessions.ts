import { hash, randomBytes } from 'node:crypto';
import type { Request, Response } from 'express';
import type { Clock } from '../base/clock.ts';
import type { Secret } from '../base/secret.ts';
import type { Operator, Role } from './operators.ts';

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
  open(holder: Holder): string | undefined {
    this.#dropEnded();
    const { operator } = holder;
    const own = [...this.#open.values()].filter((each) => isOfSameHolder(each, holder));
    const [oldest] = own;
    if (oldest !== undefined && own.length >= (operator === undefined ? MAX_OF_TOKENS : MAX_OF_PERSON)) {
      this.#open.delete(oldest.id);
    } else if (operator !== undefined && this.#ofPeople() >= this.#bounds.max) return undefined;
    const value = randomBytes(32).toString('base64url');
    const now = this.#clock.now();
    const id = idOf(value);
    this.#open.set(id, { ...holder, id, endsAt: now + this.#bounds.life, usedAt: now });
    return value;
  }

  /** Returns the session of a cookie, which is in use now. Undefined: there is none, or it has ended. */
  find(value: string): Session | undefined {
    // By its hash, so that the time of the lookup says nothing about other cookies.
    const session = VALUE.test(value) ? this.#open.get(idOf(value)) : undefined;
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

/** A hash, which names the session without revealing its cookie. */
function idOf(value: string): string {
  return hash('sha256', value, 'base64url');
}

/** True for one person, or one token: the holder of the reading token must not end sessions of the other. */
export function isOfSameHolder(one: Holder, other: Holder): boolean {
  if (one.operator?.subject !== other.operator?.subject) return false;
  return one.operator !== undefined || one.roles === other.roles;
}

/**
 * The cookies of the console: the session, and the sign-in that this browser began. A browser sends a strict cookie not
 * with a navigation from the page of the provider, so that of the sign-in is lax.
 */
const COOKIES = {
  session: { name: 'digest-gateway-session', sameSite: 'strict' },
  signIn: { name: 'digest-gateway-sign-in', sameSite: 'lax' },
} as const;

type CookieKind = keyof typeof COOKIES;

/** Longest value that is read, in characters. */
const MAX_VALUE = 2_048;

/** The cookies of the console. */
export class Cookies {
  readonly #isSecure: boolean;

  /** `publicOrigin`: the address of the console in browsers, if it is configured. */
  constructor(publicOrigin: string | undefined) {
    this.#isSecure = publicOrigin?.startsWith('https:') === true;
  }

  /** The value in a request; undefined: it has none. No value has a character that would be quoted or encoded. */
  read(req: Request, kind: CookieKind): string | undefined {
    const start = `${this.#name(req, kind)}=`;
    const pairs = (req.headers.cookie ?? '').split(';').map((pair) => pair.trim());
    const value = pairs.find((pair) => pair.startsWith(start))?.slice(start.length);
    return value !== undefined && value.length <= MAX_VALUE ? value : undefined;
  }

  set(req: Request, res: Response, kind: CookieKind, value: string, maxAge: number): void {
    res.cookie(this.#name(req, kind), value, { ...this.#options(req, kind), maxAge });
  }

  clear(req: Request, res: Response, kind: CookieKind): void {
    res.clearCookie(this.#name(req, kind), this.#options(req, kind));
  }

  /**
   * The prefix keeps other hosts of the domain from setting the cookie. The port is that of this gateway: a browser sends
   * a cookie to every port of a host.
   */
  #name(req: Request, kind: CookieKind): string {
    const name = `${COOKIES[kind].name}-${req.socket.localPort ?? 'socket'}`;
    return this.#isSecure ? `__Host-${name}` : name;
  }

  #options(req: Request, kind: CookieKind) {
    const { sameSite } = COOKIES[kind];
    return { httpOnly: true, sameSite, secure: this.#isSecure || req.secure, path: '/' } as const;
  }
}
