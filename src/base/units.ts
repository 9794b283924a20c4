const MILLISECONDS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const BYTES: Readonly<Record<string, number>> = {
  '': 1,
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/**
 * Parses a duration such as `500ms`, `30s`, `5m`, `1h` or `1d` to milliseconds. Whole numbers only.
 * @throws RangeError with the issue and the correct form
 */
export function parseDuration(text: string): number {
  return parse(text, MILLISECONDS, 'a duration', '500ms, 30s, 5m, 1h or 1d');
}

/**
 * Parses a size such as `512`, `512B`, `64KiB`, `1MiB` or `2GiB` to bytes. Whole numbers only.
 * @throws RangeError with the issue and the correct form
 */
export function parseSize(text: string): number {
  return parse(text, BYTES, 'a size', '512, 512B, 64KiB, 1MiB or 2GiB');
}

/** Formats a duration or a size as it is parsed, in the largest unit of which it is a whole number. */
export function formatUnit(value: number, kind: 'duration' | 'size'): string {
  const units = Object.entries(kind === 'duration' ? MILLISECONDS : BYTES);
  const [name, size] = units.findLast(([, each]) => value >= each && value % each === 0) ?? ['', 1];
  return `${value / size}${name}`;
}

const INSTANT =
  /^(\d{4}-\d\d-\d\d)(?:[Tt]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)))?$/;

/**
 * Parses a date, which stands for its first instant in UTC, or a time of RFC 3339, to Unix milliseconds.
 * @throws RangeError with the issue and the correct form
 */
export function parseInstant(text: string): number {
  const [, date, time = 'Z'] = INSTANT.exec(text) ?? [];
  const midnight = new Date(`${date}T00:00:00Z`);
  const isDate = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(`${date}T`);
  const at = time === 'Z' ? midnight.getTime() : Date.parse(`${date}T${time.toUpperCase()}`);
  // Date accepts the 31st of February as the 3rd of March.
  if (isDate && !Number.isNaN(at)) return at;
  // Unlike a duration, this may stand where a secret is expected, so it is not quoted.
  throw new RangeError(
    'is not a date or time: write a date, such as 2027-03-01, or a time, such as 2027-03-01T12:00:00Z',
  );
}

/** Formats Unix milliseconds as people write them: the date alone if it is the first instant of one in UTC. */
export function formatInstant(at: number): string {
  const text = formatTime(at);
  return text.endsWith('T00:00:00Z') ? text.slice(0, 10) : text;
}

/** Returns the text with a capital letter at its beginning. */
export function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Formats Unix milliseconds as RFC 3339 in UTC, without the milliseconds if they are 0. */
export function formatTime(at: number): string {
  return new Date(at).toISOString().replace('.000Z', 'Z');
}

/** Formats the end of something: `ends 2027-03-01`, or `ended …` if `now`, in Unix milliseconds, is not before it. */
export function endText(at: number, now: number): string {
  return `${at <= now ? 'ended' : 'ends'} ${formatInstant(at)}`;
}

function parse(
  text: string,
  units: Readonly<Record<string, number>>,
  kind: string,
  examples: string,
): number {
  const match = /^(\d{1,16})([a-zA-Z]{0,3})$/.exec(text);
  const unit = match?.[2] ?? '';
  if (match === null || !Object.hasOwn(units, unit)) {
    throw new RangeError(
      `${quote(text)} is not ${kind}: write a whole number and its unit, such as ${examples}`,
    );
  }
  const value = Number(match[1]) * (units[unit] ?? Number.NaN);
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(`${quote(text)} is too large for ${kind}`);
  }
  return value;
}

function quote(text: string): string {
  return JSON.stringify(text.length > 32 ? `${text.slice(0, 32)}…` : text);
}

/** Formats a number of things: `1 record`, `2 records`. */
export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

const UNITS = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
] as const;

/** Formats a time span in its largest unit, given in seconds. */
export function span(seconds: number): string {
  for (const [unit, size] of UNITS) {
    // An hour and a half is shown as 90 min.
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}
