import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { RateLimiterMemory } from 'rate-limiter-flexible';

/** Wrong tokens from one address before the next one is told to wait, and how long, in seconds. */
const FAILURES = 10;
const WAIT_SECONDS = 60;
/** Addresses share so many counts, so that the memory for them has an end. */
const COUNTS = 4096;
const SESSION_MS = 12 * 3_600_000;

/** `right`; `wrong`; or, for one wrong token too many, seconds to wait. */
export type Verdict = 'right' | 'wrong' | number;

/** Knows the token of the control plane by its hash, and who has shown it. */
export class Guard {
  readonly #tokenHash: Buffer;
  /** Of this process alone, so that a restart ends every session. */
  readonly #sessionKey = randomBytes(32);
  readonly #failures = new RateLimiterMemory({ points: FAILURES, duration: WAIT_SECONDS });

  /** `tokenSha256` in hex. */
  constructor(tokenSha256: string) {
    this.#tokenHash = Buffer.from(tokenSha256, 'hex');
  }

  /** The right token passes however many wrong ones came: others may share its address. */
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

  /** For whoever has shown the token: what a cookie holds instead of it, and how long it counts. */
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
