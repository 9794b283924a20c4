import { span } from '../../base/units.ts';

/** Formats a whole number, with commas between thousands. */
export const count: (value: number) => string = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
  .format;

/** Formats a number with its noun, such as `2 requests`. */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Formats a rate: two significant digits below ten, else a whole number. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return '0';
  if (perSecond < 0.01) return '< 0.01';
  return perSecond < 10 ? String(Number(perSecond.toPrecision(2))) : count(perSecond);
}

/** Formats a share of one. */
export function percent(share: number): string {
  return `${Number((share * 100).toPrecision(3))} %`;
}

/** Formats a latency, given in seconds. */
export function latency(seconds: number): string {
  const ms = seconds * 1000;
  if (ms < 1000) return `${ms < 10 ? Number(ms.toPrecision(2)) : count(ms)} ms`;
  return `${Number(seconds.toPrecision(3))} s`;
}

/** Formats the time since an event, given in seconds. */
export function ago(seconds: number): string {
  return seconds < 2 ? 'just now' : `${span(seconds)} ago`;
}

/** Makes a function that formats Unix milliseconds. */
const timeFormat = (options: Intl.DateTimeFormatOptions): ((at: number) => string) =>
  new Intl.DateTimeFormat('en-GB', options).format;

export const timeOfDay = timeFormat({ timeStyle: 'medium' });
export const date = timeFormat({ dateStyle: 'medium' });
export const utcDate = timeFormat({ dateStyle: 'medium', timeZone: 'UTC' });
export const moment = timeFormat({ dateStyle: 'medium', timeStyle: 'short' });
export const momentWithSeconds = timeFormat({ dateStyle: 'medium', timeStyle: 'medium' });
export const hourAndMinute = timeFormat({ timeStyle: 'short' });
export const utcDayAndMonth = timeFormat({ day: 'numeric', month: 'short', timeZone: 'UTC' });

const SIZES = [
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10],
] as const;

/** Formats a size in bytes, in its largest unit. */
export function bytes(size: number): string {
  const [unit, factor] = SIZES.find(([, each]) => size >= each) ?? ['B', 1];
  return `${Number((size / factor).toPrecision(3))} ${unit}`;
}
