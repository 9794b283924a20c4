import { parseAddress } from '../../base/network.ts';
import type { StatusRange } from './query.ts';

/**
 * Checks an address to search for: an IP address, or one as a log with pseudonyms has it.
 * @throws RangeError with the right form
 */
export function addressCriterion(text: string): string {
  if (parseAddress(text) !== undefined || /^hmac:[\w-]{22}$/.test(text)) return text;
  throw new RangeError('an address is 192.0.2.7, 2001:db8::7, or hmac:… as the log has it');
}

/**
 * Reads a status or a range of them: `404`, `4xx` or `400-499`.
 * @throws RangeError with the right form
 */
export function statusCriterion(text: string): StatusRange {
  const [, exact, hundred, from, to] = /^(?:([1-5]\d\d)|([1-5])xx|([1-5]\d\d)-([1-5]\d\d))$/.exec(text) ?? [];
  if (exact !== undefined) return { from: Number(exact), to: Number(exact) };
  if (hundred !== undefined) return { from: Number(hundred) * 100, to: Number(hundred) * 100 + 99 };
  if (from === undefined || to === undefined) throw new RangeError('a status is 404, 4xx or 400-499');
  return { from: Number(from), to: Number(to) };
}
