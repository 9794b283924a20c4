import { isIPv4, isIPv6 } from 'node:net';
import { resolve } from 'node:path';
import { z } from 'zod';
import { LONGEST_TIMER_MS } from '../base/clock.ts';
import { Network } from '../base/network.ts';
import { parseDuration, parseInstant, parseSize } from '../base/units.ts';

/*
 * Schemas of single values. The `error` of a schema completes the sentence "must be …"; the message of a
 * custom issue is a whole sentence. Neither quotes a value that may be a secret.
 */

/** Matches names of credentials, deployments and operations, ids of clients, and names of sealed entries. */
export const NAME = /^[A-Za-z0-9][\w.-]{0,63}$/;
export const NAME_FORM = 'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first';

/** The `error` of a section. */
export const SECTION = 'a mapping of keys to values';

/** A mapping with these keys and no others. */
export const section = <Shape extends z.core.$ZodLooseShape>(shape: Shape) =>
  z.strictObject(shape, { error: SECTION });

export const flag = (): z.ZodBoolean => z.boolean({ error: 'true or false' });

export const port = (): z.ZodType<number> => whole(0, 65_535);

/** A whole number from `min` to `max`. */
export function whole(min: number, max: number): z.ZodType<number> {
  const error = `a whole number from ${min} to ${max}`;
  // A fraction would keep z.int() from running the cross-checks of all sections around it.
  return z.number({ error }).multipleOf(1, { error }).min(min, { error }).max(max, { error });
}

/** One of several texts. */
export function oneOf<const T extends readonly string[]>(choices: T): z.ZodType<T[number]> {
  return z.enum(choices, { error: choices.length === 1 ? `${choices[0]}` : `one of ${choices.join(', ')}` });
}

/** A text that matches `shape`. */
export function text(
  expected: string,
  shape: RegExp | ((value: string) => boolean) = /./u,
): z.ZodType<string> {
  const fits = typeof shape === 'function' ? shape : (value: string) => shape.test(value);
  const schema = z.string({ error: expected }).refine(fits, { error: `must be ${expected}` });
  // A pattern of JSON Schema has no flags.
  const portable = shape instanceof RegExp && !shape.ignoreCase;
  return portable ? schema.meta({ pattern: shape.source }) : schema;
}

/** A duration from 1 ms to the longest that a timer can measure; the output is in milliseconds. */
export const duration = (): z.ZodType<number> =>
  durationFrom(1, 'a duration, such as 500ms, 30s or 5m', 'a duration from 1ms to 24d');

/** A duration for a timer that may be zero; the output is in milliseconds. */
export const durationOrZero = (): z.ZodType<number> =>
  durationFrom(0, 'a duration, such as 0s, 500ms or 5s', 'a duration from 0s to 24d');

/** A duration of any length, such as years; the output is in milliseconds. */
export const period = (): z.ZodType<number> =>
  durationFrom(1, 'a period, such as 12h, 1d or 365d', 'a period of 1ms or more', Number.POSITIVE_INFINITY);

function durationFrom(
  least: number,
  error: string,
  range: string,
  most = LONGEST_TIMER_MS,
): z.ZodType<number> {
  return quantity('duration', error, (written) => {
    const milliseconds = parseDuration(written);
    if (milliseconds >= least && milliseconds <= most) return milliseconds;
    throw new RangeError(`${written} is out of range: write ${range}`);
  });
}

/** A date, which stands for its first instant in UTC, or a time of RFC 3339; the output is in Unix milliseconds. */
export const instant = (): z.ZodType<number> =>
  parsed(z.string({ error: 'a date, such as 2027-03-01, or a time of RFC 3339' }), parseInstant);

/** A size; the output is in bytes. */
export const size = (): z.ZodType<number> =>
  quantity('size', 'a size, such as 512B, 64KiB or 1MiB', parseSize);

/** A size that may be switched off, which is 0 in the output. */
export const sizeOrOff = () =>
  z
    .union([size(), z.literal(['off', false])], { error: 'a size, such as 512B or 64KiB, or off' })
    .transform((value) => (typeof value === 'number' ? value : 0));

/** `unit` tells the configuration page how to format defaults, and selects the pattern of the JSON Schema. */
function quantity(
  unit: 'duration' | 'size',
  error: string,
  parse: (written: string) => number,
): z.ZodType<number> {
  // YAML reads a value without a unit as a number.
  return parsed(z.union([z.string(), z.number()], { error }), parse).meta({ unit });
}

/** A value with a parsed form; `parse` throws a RangeError whose message, a whole sentence, becomes the issue. */
export function parsed<T>(shape: z.ZodType<string | number>, parse: (written: string) => T): z.ZodType<T> {
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

/** A network in CIDR notation, or an address. */
export const network = (): z.ZodType<Network> =>
  parsed(z.string({ error: 'an address or a network, such as 10.1.0.0/16' }), Network.parse);

/** The text of an expectation, also as a function of the value that is written. */
type Expected = string | ((issue: { readonly input?: unknown }) => string);

/** A list of at least one item. */
export const listOf = <T extends z.ZodType>(item: T, expected: Expected) =>
  z.array(item, { error: expected }).nonempty({ error: expected });

/** One value, or a list of several, as while one replaces another; the result is always a list. */
export const oneOrMore = <T>(item: z.ZodType<T>, expected: Expected) =>
  z.union([item.transform((value) => [value]), listOf(item, expected)], { error: expected });

/** The folder that relative file names start at; undefined: nothing is being parsed. */
let base: string | undefined;

/** Runs a parse in which relative file names start at `folder`, so that one schema serves for all folders. */
export function inFolder<T>(folder: string, parse: () => T): T {
  base = folder;
  try {
    return parse();
  } finally {
    base = undefined;
  }
}

/** A file name, resolved against the folder of the configuration: its schema parses within `inFolder`. */
export const fileName = (): z.ZodType<string> =>
  text('the name of a file').transform((name) => {
    if (base === undefined) throw new TypeError('a file name is parsed outside of a folder');
    return resolve(base, name);
  });

/** The file with the authorities of a peer. */
export const authoritiesFile = () =>
  fileName().exactOptional().describe('PEM: the authorities to trust instead of those that Node.js has.');

/** Longest path of a UNIX socket in bytes, on every system (macOS has the shortest). */
const MAX_SOCKET_PATH = 103;

export const bindAddress = (): z.ZodType<string> =>
  text(
    `an IP address to listen on, such as 127.0.0.1 or ::1, or localhost, or unix: and the absolute path of a socket, of at most ${MAX_SOCKET_PATH} bytes, such as unix:/run/digest-gateway/data.sock`,
    (value) => value === 'localhost' || isIPv4(value) || isIPv6(value) || isSocketAddress(value),
  );

function isSocketAddress(value: string): boolean {
  const [, path = ''] = /^unix:(\/.*[^/])$/.exec(value) ?? [];
  return path !== '' && !path.includes('\0') && Buffer.byteLength(path) <= MAX_SOCKET_PATH;
}

/** Permissions of a file as chmod takes them. */
export const fileMode = (): z.ZodType<string> =>
  text('permissions of a file in octal and quotes, such as "0660"', (value) => /^0?[0-7]{3}$/.test(value));

export const hostName = (): z.ZodType<string> =>
  text('a host name without scheme and port, such as submissions.gateway.internal', isHost).transform(
    (host) => host.toLowerCase(),
  );

/** The host of a Host header, without the port. */
export const clientHost = (): z.ZodType<string> =>
  text(
    'a host name or an address without scheme and port, such as gateway.internal, 10.0.0.7 or ::1',
    (value) => isHost(value) || isIPv6(value.replace(/^\[(.*)\]$/, '$1')),
  );

/** `https://host` or `https://host:port`, kept as written. */
export const origin = (): z.ZodType<string> =>
  text(
    'an origin with nothing after it, such as https://submissions.example.org or https://submissions.example.org:8443',
    isOrigin,
  );

/** True for a scheme and host with an optional port, and nothing after them. */
export function isOrigin(value: string): boolean {
  const match = /^https?:\/\/([^/:@[\]]+|\[[^\]]+\])(?::(\d{1,5}))?$/.exec(value);
  const [, host = '', portText = '443'] = match ?? [];
  const number = Number(portText);
  return number >= 1 && number <= 65_535 && (host.startsWith('[') ? isIPv6(host.slice(1, -1)) : isHost(host));
}

/** True for a DNS name in its ASCII form, or an IPv4 address. */
export function isHost(value: string): boolean {
  return value.length <= 253 && value.split('.').every((label) => /^\w[\w-]{0,62}$/.test(label));
}

/** A rule for the names of a record; `message` is a whole sentence. */
interface NameRule {
  readonly allowed: RegExp;
  readonly message: string;
}

const ANY_NAMES: NameRule = {
  allowed: /(?:)/,
  message: 'is not a name that can be used here: choose another',
};

/** Names of query parameters that a rule can compare without decoding them. */
export const PARAMETER_NAMES: NameRule = {
  allowed: /^[\w\-.~]+$/,
  message: 'is not a name that can be checked: letters, digits, "-", "_", "." and "~" only',
};

/** Names of credentials, deployments and operations. */
export const ENTRY_NAMES: NameRule = {
  allowed: NAME,
  message: `is not a name that can be used here: ${NAME_FORM}`,
};

/** A record without prototype, so that a lookup of a client's text such as "constructor" finds nothing. */
export function record<T extends z.ZodType>(
  value: T,
  { allowed, message } = ANY_NAMES,
  expected: string = SECTION,
) {
  const entries = z
    .record(z.string().regex(allowed, message), value, { error: expected })
    .overwrite((found) => Object.assign(Object.create(null), found));
  return z.preprocess((written, context) => {
    // zod drops this key without an issue.
    if (typeof written !== 'object' || written === null || !Object.hasOwn(written, '__proto__'))
      return written;
    context.addIssue({ code: 'custom', path: ['__proto__'], message, params: { atKey: true } });
    return undefined;
  }, entries);
}

/** The SHA-256 of a token. */
export const tokenHash = () =>
  text('the SHA-256 of the token, 64 hex digits', /^[0-9a-fA-F]{64}$/).transform((hex) => hex.toLowerCase());
