import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';

/** A longer time of an upstream is not believed, in milliseconds. */
const LONGEST_MS = 3_600_000;

/** The forms of HTTP-date (RFC 9110 §5.6.7): IMF-fixdate and that of RFC 850, and that of asctime. */
const WITH_ZONE =
  /^(?:\w{3}, \d{2} \w{3} \d{4}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \d{2}-\w{3}-\d{2}) \d{2}:\d{2}:\d{2} GMT$/;
const ASCTIME = /^\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/;

/**
 * Returns the time in milliseconds that the Retry-After of a response asks for (RFC 9110 §10.2.3), from 0 to one hour;
 * undefined: it has none, or none that is valid. A date counts from the Date of the response, so that a difference of
 * the clocks does not matter. `now`: Unix milliseconds, for a response without Date.
 */
export function retryAfterMs(headers: RawHeaders, now: number): number | undefined {
  const [value, ...others] = fieldValues(headers, 'retry-after');
  if (value === undefined || others.length > 0) return undefined;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, LONGEST_MS);
  const at = dateOf(value);
  if (at === undefined) return undefined;
  const sentAt = dateOf(fieldValues(headers, 'date')[0] ?? '') ?? now;
  return Math.min(Math.max(0, at - sentAt), LONGEST_MS);
}

/** Parses an HTTP-date to Unix milliseconds; undefined: it is none. */
function dateOf(text: string): number | undefined {
  if (!WITH_ZONE.test(text) && !ASCTIME.test(text)) return undefined;
  // asctime has no zone, and JavaScript would take that of this host.
  const at = Date.parse(text.endsWith(' GMT') ? text : `${text} GMT`);
  return Number.isNaN(at) ? undefined : at;
}
