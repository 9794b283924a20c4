import { expiryOf } from '../transport/certificate-expiry.ts';
import type { TlsSeen } from '../transport/upstream-tls.ts';
import { type Finding, fine, wrong } from './finding.ts';

/**
 * Clock difference in milliseconds above which a warning is given: nonces and certificates depend on time.
 */
const CLOCK_MS = 30_000;

/** Judges the TLS handshake. `now`: Unix time in milliseconds; `seen`: undefined without TLS. */
export function tlsFinding(seen: TlsSeen | undefined, now: number): Finding {
  if (seen === undefined) return wrong('tls', 'plaintext', 'no TLS');
  const { protocol, expiresAt } = seen;
  // A distinguished name has one attribute on each line.
  const issuer = seen.issuer.trimEnd().replaceAll('\n', ', ');
  const { daysLeft, isSoon, text } = expiryOf(expiresAt, now);
  const saw = `${protocol}, issued by ${issuer}, ${text}`;
  const facts = { protocol, issuer, expiresAt: new Date(expiresAt).toISOString(), daysLeft };
  return isSoon ? wrong('tls', 'certificate-expires-soon', saw, facts) : fine('tls', saw, facts);
}

/** `differenceMs`: lead of the upstream's clock; undefined if unknown, which gives no finding. */
export function clockFinding(differenceMs: number | undefined): Finding[] {
  if (differenceMs === undefined) return [];
  const seconds = Math.round(differenceMs / 1000);
  const direction = seconds < 0 ? 'behind' : 'ahead of';
  const saw =
    seconds === 0
      ? 'the same as here'
      : `the upstream is ${count(Math.abs(seconds), 'second')} ${direction} this host`;
  const facts = { differenceMs };
  const off = Math.abs(differenceMs) > CLOCK_MS;
  return [off ? wrong('clock', 'clock-difference', saw, facts) : fine('clock', saw, facts)];
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
