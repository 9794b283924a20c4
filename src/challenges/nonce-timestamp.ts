/** Seconds or milliseconds since 1970, from 2001 on; no part of a longer number. */
const TIMESTAMP = /(?<![0-9A-Fa-f])(?:\d{13}|\d{10})(?![0-9A-Fa-f])/g;
/** Longest plausible lifetime, in milliseconds; a later time is a number with another meaning. */
const FARTHEST_MS = 24 * 60 * 60_000;

/**
 * Returns the expiry that a nonce carries, in milliseconds from `issuedAt` (Unix time in ms): the latest time in it, in
 * the open or in base64, if that lies ahead; undefined: none. It is only a hint, since the form of a nonce is the
 * server's own affair (RFC 7616 §3.3).
 */
export function expiryHint(nonce: string, issuedAt: number): number | undefined {
  const text = `${nonce} ${Buffer.from(nonce, 'base64').toString('latin1')}`;
  let latest = 0;
  for (const [digits] of text.matchAll(TIMESTAMP)) {
    const ahead = Number(digits) * (digits.length === 10 ? 1000 : 1) - issuedAt;
    if (ahead > latest && ahead < FARTHEST_MS) latest = ahead;
  }
  return latest === 0 ? undefined : latest;
}
