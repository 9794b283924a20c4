import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** Wrong tokens from one address within this time before further ones must wait for its end. */
const FAILURES = 10;
const WAIT_MS = 60_000;
/** Number of failure counters. Addresses are hashed onto them, which bounds the memory. */
const COUNTS = 4096;
const SESSION_MS = 12 * 3_600_000;

/** Access that a token or session gives: to everything, or to reading alone. */
export type Access = 'full' | 'read';

/** Result of a token check; a number means too many wrong tokens, and is the time to wait in seconds. */
export type Verdict = Access | 'wrong' | number;

/** Wrong tokens since the first of them. */
interface Failures {
  count: number;
  /** When they are forgotten, in milliseconds of a monotonic clock. */
  readonly until: number;
}

/** SHA-256 of the tokens, in hex. */
export interface TokenHashes {
  readonly full: string;
  /** Undefined: there is no token for reading alone. */
  readonly read?: string | undefined;
}

/** Checks the control plane's tokens against their hashes, and issues sessions. */
export class Guard {
  readonly #hashes: readonly (readonly [Access, Buffer])[];
  /** Random for each process, so that a restart ends every session. */
  readonly #sessionKey = randomBytes(32);
  readonly #failures = new Map<number, Failures>();

  constructor({ full, read }: TokenHashes) {
    const ofRead = read === undefined ? [] : [['read', Buffer.from(read, 'hex')] as const];
    this.#hashes = [['full', Buffer.from(full, 'hex')], ...ofRead];
  }

  /**
   * Checks a token. A right one passes in spite of earlier failures, because clients may share an
   * address. `now`: milliseconds of a monotonic clock.
   */
  tryToken(token: string, address: string, now: number): Verdict {
    const hash = createHash('sha256').update(token).digest();
    for (const [access, wanted] of this.#hashes) if (timingSafeEqual(hash, wanted)) return access;
    const place = this.#seal(address).readUInt32BE() % COUNTS;
    const failures = this.#failures.get(place);
    if (failures === undefined || now >= failures.until) {
      this.#failures.set(place, { count: 1, until: now + WAIT_MS });
      return 'wrong';
    }
    if (failures.count >= FAILURES) return Math.ceil((failures.until - now) / 1000);
    failures.count += 1;
    return 'wrong';
  }

  /** Creates a session for a client with a right token: the cookie's value and its lifetime. */
  openSession(access: Access, now: number): { readonly session: string; readonly lifetimeMs: number } {
    // Random, so that no two sessions are the same.
    const content = `${now + SESSION_MS}.${access}.${randomBytes(12).toString('base64url')}`;
    return { session: `${content}.${this.#seal(content).toString('base64url')}`, lifetimeMs: SESSION_MS };
  }

  /** Returns what a session allows; undefined: it is none, or has ended. */
  accessOf(session: string, now: number): Access | undefined {
    const end = session.lastIndexOf('.');
    const content = session.slice(0, Math.max(0, end));
    const given = Buffer.from(session.slice(end + 1), 'base64url');
    const wanted = this.#seal(content);
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return undefined;
    const [until, access] = content.split('.');
    if (now >= Number(until)) return undefined;
    return access === 'full' || access === 'read' ? access : undefined;
  }

  #seal(text: string): Buffer {
    return createHmac('sha256', this.#sessionKey).update(text).digest();
  }
}
