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
