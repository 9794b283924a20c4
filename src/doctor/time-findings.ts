import type { TlsSeen } from '../upstream/upstream-tls.ts';
import { type Finding, fine, wrong } from './finding.ts';

const DAY_MS = 86_400_000;
/** A certificate that expires sooner, in days, is worth a word: somebody has to renew it. */
const SOON_DAYS = 30;
/** Nonces carry timestamps and certificates expire: a clock that is further off, in milliseconds, shows there. */
const CLOCK_MS = 30_000;

/** What the TLS handshake showed; `now`: Unix time in milliseconds. undefined: there was no TLS. */
export function tlsFinding(seen: TlsSeen | undefined, now: number): Finding {
  if (seen === undefined) return wrong('tls', 'plaintext', 'no TLS');
  const { protocol, expiresAt } = seen;
  // A distinguished name has one attribute a line.
  const issuer = seen.issuer.trimEnd().replaceAll('\n', ', ');
  const daysLeft = Math.floor((expiresAt - now) / DAY_MS);
  const expires = new Date(expiresAt).toISOString();
  const saw = `${protocol}, issued by ${issuer}, expires ${expires.slice(0, 10)}, ${count(daysLeft, 'day')} left`;
  const facts = { protocol, issuer, expiresAt: expires, daysLeft };
  return daysLeft < SOON_DAYS
    ? wrong('tls', 'certificate-expires-soon', saw, facts)
    : fine('tls', saw, facts);
}

/** `differenceMs`: how far the upstream's clock is ahead; undefined: it did not tell, and there is nothing to say. */
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
