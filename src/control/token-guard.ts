import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { senderNetwork } from '../base/network.ts';

/** Wrong tokens from one address, or one /64 of IPv6, within this time before further ones must wait for its end. */
const FAILURES = 10;
const WAIT_MS = 60_000;
/** Number of failure counters. Senders are hashed onto them, which bounds the memory. */
const COUNTS = 4096;

/** Access that a token gives: to everything, or to reading alone. */
export type Access = 'full' | 'read';

/** Result of a token check; a number means too many wrong tokens, and is the time to wait in seconds. */
export type Verdict = Access | 'wrong' | number;

/** Wrong tokens since the first of them. */
interface Failures {
  count: number;
  /** When they are forgotten, in milliseconds of a monotonic clock. */
  readonly until: number;
}

/** SHA-256 of the tokens, in hex; undefined: there is none of that kind. */
export interface TokenHashes {
  readonly full?: string | undefined;
  readonly read?: string | undefined;
}

/** Checks the control plane's tokens against their hashes. */
export class TokenGuard {
  readonly #hashes: readonly (readonly [Access, Buffer])[];
  readonly #key = randomBytes(32);
  readonly #failures = new Map<number, Failures>();

  constructor({ full, read }: TokenHashes) {
    this.#hashes = [
      ...(full === undefined ? [] : [['full', Buffer.from(full, 'hex')] as const]),
      ...(read === undefined ? [] : [['read', Buffer.from(read, 'hex')] as const]),
    ];
  }

  /**
   * Checks a token. A right one passes in spite of earlier failures, because clients may share an
   * address. `now`: milliseconds of a monotonic clock.
   */
  tryToken(token: string, address: string, now: number): Verdict {
    const hash = createHash('sha256').update(token).digest();
    for (const [access, wanted] of this.#hashes) if (timingSafeEqual(hash, wanted)) return access;
    const place =
      createHmac('sha256', this.#key).update(senderNetwork(address)).digest().readUInt32BE() % COUNTS;
    const failures = this.#failures.get(place);
    if (failures === undefined || now >= failures.until) {
      this.#failures.set(place, { count: 1, until: now + WAIT_MS });
      return 'wrong';
    }
    if (failures.count >= FAILURES) return Math.ceil((failures.until - now) / 1000);
    failures.count += 1;
    return 'wrong';
  }
}

export function isAccess(verdict: Verdict): verdict is Access {
  return verdict === 'full' || verdict === 'read';
}
