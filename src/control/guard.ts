import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { createRequire } from 'node:module';
import type { RateLimiterMemory } from 'rate-limiter-flexible';

const require = createRequire(import.meta.url);
/** By itself: the index also loads the limiters of a dozen databases. */
const Limiter: typeof RateLimiterMemory = require('rate-limiter-flexible/lib/RateLimiterMemory.js');

/** Wrong tokens from one address before further ones must wait, and the waiting time in seconds. */
const FAILURES = 10;
const WAIT_SECONDS = 60;
/** Number of failure counters. Addresses are hashed onto them, which bounds the memory. */
const COUNTS = 4096;
const SESSION_MS = 12 * 3_600_000;

/** Access that a token or session gives: to everything, or to reading alone. */
export type Access = 'full' | 'read';

/** Result of a token check; a number means too many wrong tokens, and is the time to wait in seconds. */
export type Verdict = Access | 'wrong' | number;

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
  readonly #failures = new Limiter({ points: FAILURES, duration: WAIT_SECONDS });

  constructor({ full, read }: TokenHashes) {
    const ofRead = read === undefined ? [] : [['read', Buffer.from(read, 'hex')] as const];
    this.#hashes = [['full', Buffer.from(full, 'hex')], ...ofRead];
  }

  /**
   * Checks a token. A right one passes in spite of earlier failures, because clients may share an
   * address.
   */
  async tryToken(token: string, address: string): Promise<Verdict> {
    const hash = createHash('sha256').update(token).digest();
    for (const [access, wanted] of this.#hashes) if (timingSafeEqual(hash, wanted)) return access;
    const count = this.#seal(address).readUInt32BE() % COUNTS;
    const failures = await this.#failures.get(count);
    if (failures !== null && failures.consumedPoints >= FAILURES) {
      return Math.ceil(failures.msBeforeNext / 1000);
    }
    await this.#failures.penalty(count);
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
