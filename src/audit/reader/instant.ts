import { parseDuration } from '../../base/units.ts';

const FORMS = 'a time is 2026-03, 2026-03-01, 2026-03-01T08:00:00Z or "2d ago"; UTC unless it says otherwise';

/**
 * Returns the start of a time or period as RFC 3339 in UTC, with milliseconds.
 * @throws RangeError with the forms of a time
 */
export function instantAt(value: string): string {
  return rangeOf(value).from;
}

/**
 * Returns the end of a month or day, or the time itself, as RFC 3339 in UTC.
 * @throws RangeError
 */
export function instantAfter(value: string): string {
  return rangeOf(value).after;
}

function rangeOf(value: string): { from: string; after: string } {
  const [, year, month, day] = /^(\d{4})-(\d\d)(?:-(\d\d))?$/.exec(value) ?? [];
  if (year === undefined || month === undefined) {
    const then = instant(value);
    return { from: then, after: then };
  }
  const [first, index] = [Number(day ?? 1), Number(month) - 1];
  const from = new Date(Date.UTC(Number(year), index, first));
  // Date accepts the 31st of February as the 3rd of March.
  if (from.getUTCMonth() !== index || from.getUTCDate() !== first) throw new RangeError(FORMS);
  const after = day === undefined ? Date.UTC(Number(year), index + 1) : from.getTime() + 86_400_000;
  return { from: from.toISOString(), after: new Date(after).toISOString() };
}

function instant(value: string): string {
  const [, period] = /^(\d+[a-z]+)(?: ago)?$/.exec(value) ?? [];
  if (period !== undefined) return new Date(Date.now() - ago(period)).toISOString();
  const zoned = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(value) ? `${value}Z` : value;
  const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(zoned);
  const milliseconds = rfc3339 ? Date.parse(zoned) : Number.NaN;
  if (Number.isNaN(milliseconds)) throw new RangeError(FORMS);
  return new Date(milliseconds).toISOString();
}

function ago(value: string): number {
  try {
    return parseDuration(value);
  } catch {
    throw new RangeError(FORMS);
  }
}
