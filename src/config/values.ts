import { isIPv4, isIPv6 } from 'node:net';
import { resolve } from 'node:path';
import { z } from 'zod';
import { Network } from '../base/network.ts';
import { LONGEST_TIMER_MS } from '../base/timer.ts';
import { parseDuration, parseSize } from '../base/units.ts';
import type { Path } from './faults.ts';

/*
 * The kinds of value that the configuration holds. The `error` of a plain kind is the end of the
 * sentence "must be …"; a custom issue is a whole sentence of its own. Neither quotes a value that
 * may be a secret.
 */

/** What a credential, a deployment, or an entry of the sealed file may be called. */
export const NAME = /^[A-Za-z0-9][\w.-]{0,63}$/;

export const SECTION = 'a mapping of keys to values';

export const flag = (): z.ZodBoolean => z.boolean({ error: 'true or false' });

export const port = (): z.ZodType<number> => whole(0, 65_535);

export function whole(min: number, max: number): z.ZodType<number> {
  const error = `a whole number from ${min} to ${max}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
}

export function oneOf<const T extends readonly string[]>(choices: T): z.ZodType<T[number]> {
  return z.enum(choices, { error: choices.length === 1 ? `${choices[0]}` : `one of ${choices.join(', ')}` });
}

/** Text of a known shape. */
export function text(
  expected: string,
  shape: RegExp | ((value: string) => boolean) = /./u,
): z.ZodType<string> {
  const fits = typeof shape === 'function' ? shape : (value: string) => shape.test(value);
  return z.string({ error: expected }).refine(fits, { error: `must be ${expected}` });
}

export const duration = (): z.ZodType<number> =>
  quantity('duration', 'a duration, such as 500ms, 30s or 5m', (written) => {
    const milliseconds = parseDuration(written);
    if (milliseconds === 0 || milliseconds > LONGEST_TIMER_MS) {
      throw new RangeError(`${written} is out of range: write a duration from 1ms to 24d`);
    }
    return milliseconds;
  });

/** A wait that may be left out. */
export const durationOrZero = (): z.ZodType<number> =>
  quantity('duration', 'a duration, such as 0s, 500ms or 5s', (written) => {
    const milliseconds = parseDuration(written);
    if (milliseconds <= LONGEST_TIMER_MS) return milliseconds;
    throw new RangeError(`${written} is out of range: write a duration from 0s to 24d`);
  });

/** A span of time that no timer measures: days and years. */
export const period = (): z.ZodType<number> =>
  quantity('duration', 'a period, such as 12h, 1d or 365d', (written) => {
    const milliseconds = parseDuration(written);
    if (milliseconds === 0) throw new RangeError(`${written} is out of range: write a period of 1ms or more`);
    return milliseconds;
  });

export const size = (): z.ZodType<number> =>
  quantity('size', 'a size, such as 512B, 64KiB or 1MiB', parseSize);

/** `unit` is for the configuration page, which shows defaults as they are written. */
function quantity(
  unit: 'duration' | 'size',
  error: string,
  parse: (written: string) => number,
): z.ZodType<number> {
  // A number without unit reaches here as a number, not as text.
  return meaning(z.union([z.string(), z.number()], { error }), parse).meta({ unit });
}

/** Text that stands for something; `parse` throws a RangeError whose message is the complaint. */
function meaning<T>(shape: z.ZodType<string | number>, parse: (written: string) => T): z.ZodType<T> {
  return shape.transform((written, context) => {
    try {
      return parse(String(written));
    } catch (failure) {
      if (!(failure instanceof RangeError)) {
        throw failure;
      }
      context.addIssue({ code: 'custom', message: failure.message });
      return z.NEVER;
    }
  });
}

/** Addresses that begin alike. */
export const network = (): z.ZodType<Network> =>
  meaning(z.string({ error: 'an address or a network, such as 10.1.0.0/16' }), Network.parse);

/** A list of at least one. */
export const listOf = <T extends z.ZodType>(item: T, expected: string) =>
  z.array(item, { error: expected }).nonempty({ error: expected });

/** One value, or a list of them for the time in which one replaces another; always a list afterwards. */
export const oneOrMore = <T>(item: z.ZodType<T>, expected: string) =>
  z.union([item.transform((value) => [value]), listOf(item, expected)], { error: expected });

/** The name of a file, relative to the folder of the configuration; absolute afterwards. */
export const fileName = (folder: string): z.ZodType<string> =>
  text('the name of a file').transform((name) => resolve(folder, name));

export const bindAddress = (): z.ZodType<string> =>
  text(
    'an IP address to listen on, such as 127.0.0.1 or ::1, or localhost',
    (value) => value === 'localhost' || isIPv4(value) || isIPv6(value),
  );

export const hostName = (): z.ZodType<string> =>
  text('a host name without scheme and port, such as submissions.gateway.internal', isHost).transform(
    (host) => host.toLowerCase(),
  );

/** What stands in a Host header, without the port. */
export const clientHost = (): z.ZodType<string> =>
  text(
    'a host name or an address without scheme and port, such as gateway.internal, 10.0.0.7 or ::1',
    (value) => isHost(value) || isIPv6(value.replace(/^\[(.*)\]$/, '$1')),
  );

/** `https://host` or `https://host:port`, kept as written: it is what the request is signed for. */
export const origin = (): z.ZodType<string> =>
  text(
    'an origin with nothing after it, such as https://submissions.example.org or https://submissions.example.org:8443',
    isOrigin,
  );

/** Scheme, host and perhaps a port, nothing after them. */
export function isOrigin(value: string): boolean {
  const match = /^https?:\/\/([^/:@[\]]+|\[[^\]]+\])(?::(\d{1,5}))?$/.exec(value);
  const [, host = '', portText = '443'] = match ?? [];
  const number = Number(portText);
  return number >= 1 && number <= 65_535 && (host.startsWith('[') ? isIPv6(host.slice(1, -1)) : isHost(host));
}

/** A DNS name in its ASCII form, or an IPv4 address. */
export function isHost(value: string): boolean {
  return value.length <= 253 && value.split('.').every((label) => /^\w[\w-]{0,62}$/.test(label));
}

/**
 * A record whose every key that the file does not have is undefined: without prototype, so that a
 * look-up by a client's word such as "constructor" finds nothing.
 */
export function record<T extends z.ZodType>(value: T, expected = SECTION) {
  return z
    .record(z.string(), value, { error: expected })
    .transform((entries): Record<string, z.output<T>> => Object.assign(Object.create(null), entries));
}

/** The keys that the mapping at a path may have; none where it may have any, or is no mapping. */
export function knownKeys(schema: unknown, path: Path): string[] {
  const inner = unwrap(schema);
  const [segment, ...rest] = path;
  if (segment === undefined) {
    return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
  }
  if (inner instanceof z.ZodObject) {
    return knownKeys(inner.shape[segment], rest);
  }
  if (inner instanceof z.ZodArray) {
    return knownKeys(inner.element, rest);
  }
  return inner instanceof z.ZodRecord ? knownKeys(inner.valueType, rest) : [];
}

function unwrap(schema: unknown): unknown {
  if (schema instanceof z.ZodPipe) {
    return unwrap(schema.in);
  }
  const wrapped =
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodExactOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault;
  return wrapped ? unwrap(schema.unwrap()) : schema;
}
