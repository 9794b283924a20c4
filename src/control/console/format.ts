import { span } from '../../base/units.ts';

const digits = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const dateAndTime = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' });

/** Formats a whole number, with commas between thousands. */
export function count(value: number): string {
  return digits.format(value);
}

/** Formats a number with its noun, such as `2 requests`. */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Formats a rate: two significant digits below ten, else a whole number. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return '0';
  if (perSecond < 0.01) return '< 0.01';
  return perSecond < 10 ? String(Number(perSecond.toPrecision(2))) : digits.format(perSecond);
}

/** Formats a share of one. */
export function percent(share: number): string {
  return `${Number((share * 100).toPrecision(3))} %`;
}

/** Formats a latency, given in seconds. */
export function latency(seconds: number): string {
  const ms = seconds * 1000;
  if (ms < 1000) return `${ms < 10 ? Number(ms.toPrecision(2)) : digits.format(ms)} ms`;
  return `${Number(seconds.toPrecision(3))} s`;
}

/** Formats the time since an event, given in seconds. */
export function ago(seconds: number): string {
  return seconds < 2 ? 'just now' : `${span(seconds)} ago`;
}

/** Formats Unix milliseconds as a time of the day. */
export function timeOfDay(at: number): string {
  return clock.format(at);
}

/** Formats Unix milliseconds as date and time. */
export function moment(at: number): string {
  return dateAndTime.format(at);
}

const day = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium' });
const exact = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** Formats Unix milliseconds as a date. */
export function date(at: number): string {
  return day.format(at);
}

const utcDay = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeZone: 'UTC' });

/** Formats Unix milliseconds as a date in UTC. */
export function utcDate(at: number): string {
  return utcDay.format(at);
}

/** Formats Unix milliseconds as date and time with seconds. */
export function momentWithSeconds(at: number): string {
  return exact.format(at);
}

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
