/*
 * The page in `console/` shares this, so this file imports nothing.
 */

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
