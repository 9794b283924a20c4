import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { RateLimiterMemory } from 'rate-limiter-flexible';

/** Wrong tokens from one address before further ones must wait, and the waiting time in seconds. */
const FAILURES = 10;
const WAIT_SECONDS = 60;
/** Number of failure counters. Addresses are hashed onto them, which bounds the memory. */
const COUNTS = 4096;
const SESSION_MS = 12 * 3_600_000;

/** Result of a token check; a number means too many wrong tokens, and is the time to wait in seconds. */
export type Verdict = 'right' | 'wrong' | number;

/** Checks the control plane's token against its hash, and issues sessions. */
export class Guard {
  readonly #tokenHash: Buffer;
  /** Random for each process, so that a restart ends every session. */
  readonly #sessionKey = randomBytes(32);
  readonly #failures = new RateLimiterMemory({ points: FAILURES, duration: WAIT_SECONDS });

  /** @param tokenSha256 in hex */
  constructor(tokenSha256: string) {
    this.#tokenHash = Buffer.from(tokenSha256, 'hex');
  }

  /**
   * Checks a token. The right one passes in spite of earlier failures, because clients may share an
   * address.
   */
  async tryToken(token: string, address: string): Promise<Verdict> {
    if (timingSafeEqual(createHash('sha256').update(token).digest(), this.#tokenHash)) return 'right';
    const count = this.#seal(address).readUInt32BE() % COUNTS;
    const failures = await this.#failures.get(count);
    if (failures !== null && failures.consumedPoints >= FAILURES) {
      return Math.ceil(failures.msBeforeNext / 1000);
    }
    await this.#failures.penalty(count);
    return 'wrong';
  }

  /** Creates a session for a client with the right token: the cookie's value and its lifetime. */
  openSession(now: number): { readonly session: string; readonly lifetimeMs: number } {
    const until = String(now + SESSION_MS);
    return { session: `${until}.${this.#seal(until).toString('base64url')}`, lifetimeMs: SESSION_MS };
  }

  isSession(session: string, now: number): boolean {
    const [until = '', seal = ''] = session.split('.');
    const given = Buffer.from(seal, 'base64url');
    const wanted = this.#seal(until);
    return given.length === wanted.length && timingSafeEqual(given, wanted) && now < Number(until);
  }

  #seal(until: string): Buffer {
    return createHmac('sha256', this.#sessionKey).update(until).digest();
  }
}
