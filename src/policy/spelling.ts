/*
 * Normalizes a path or a name as the most lenient server could read it. The result is never sent: it only
 * shows that an input that no rule matches could be read as one that a rule does match.
 */

/** Percent-encoding of any depth at once: %2e, %252e, %25252e; and %u002e, which some servers know. */
const ENCODED = /%(?:25)*(?:u([\da-f]{4})|([\da-f]{2}))/gi;
/** UTF-8 of ASCII characters in two bytes or more (RFC 3629 §3 forbids it; RFC 2279 had up to six), as Latin-1. */
const OVERLONG = /(?:[\xc0\xc1]|(?:\xe0|\xf0\x80|\xf8\x80\x80|\xfc\x80\x80\x80)[\x80\x81])[\x80-\xbf]/g;
const HIGH_BYTES = /[\x80-\xff]+/g;
/** Windows makes a slash or a backslash of them (best fit). */
const SLASHES = /[\u2044\u2215\u2216]/g;
/**
 * URL parsers drop tabs and line ends (WHATWG URL §4.4, Python's urllib.parse), others control characters around a name,
 * and Bottle bytes that are no UTF-8.
 */
const DROPPED = /(?!\0)[\p{Cc}\ufffd]/gu;
/** Those of them that no UTF-8 has in it. */
const ASCII_CONTROLS = /(?![\0\x80-\x9f])\p{Cc}/gu;
/** Maximum decoding passes: encodings can be nested (%%32e), and each pass removes one level. */
const PASSES = 3;

const LOWER_A = 0x61;
const LOWER_Z = 0x7a;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const UNDERSCORE = 0x5f;
const HYPHEN = 0x2d;

/**
 * Marks before a name that some servers remove: a second question mark of the query, the `!` of a default value in
 * Spring, and the `$` of OData 4.01.
 */
const MARKS = /^[?!$\s]+/;
const ENDS_PATH = /[?#&]/;
/** Some servers remove white space and control characters around a name (Java's `trim`), and read `+` as a space. */
const BLANK = /^[\p{White_Space}\p{Cc}+]$/u;

/** Without one of these, a path begins with two slashes in no reading. */
const MAY_HAVE_HOST = /\/\/|[;\\%\x80-\xff]/;
/** A host at the start of a path, as URL parsers read it (RFC 3986 §4.2; those of the WHATWG take backslashes, too). */
const HOST = /^[/\\]{2,}[^/\\]*/;
/** Characters of a path of which each end is a reading. Comparing them all takes quadratic time. */
const LONGEST_WITH_HOST = 128;
/** A host that all of them read alike. */
const PLAIN_HOST = /^\/{2,}\w[\w.:-]*(?:\/|$)/;

/** Without one of these, a path has no `..` in any reading. */
const MAY_LEAD_UP = /\.\.|[%\x80-\xff]/;
/** Paths that are already normal. */
const PLAIN_PATH = /^(?:\/[a-z\d_-]+)+$/;
const ASCII = /^[\0-\x7f]*$/;

/**
 * Normalizes a parameter's name as the most lenient server reads it: decoded, in lower case, without `[]` and the
 * marks before it.
 */
export function foldName(name: string): string {
  if (isPlainName(name)) return name;
  const [folded = ''] = foldCase(decodeAll(name.replaceAll('+', ' '))).split(/[[\0]/, 1);
  return folded.replace(MARKS, '').trimEnd().replace(/[. ]/g, '_');
}

/** Normalizes a query as a server reads it that decodes it, and drops control characters, before it splits it. */
export function foldQuery(query: string): string {
  return foldCase(decodeAll(query).replace(ASCII_CONTROLS, ''));
}

/**
 * True if a server could find parameters in the path: one that decodes it before it looks for the query, or makes it a
 * part of the query, as many rewrite rules do.
 */
export function hidesQuery(path: string): boolean {
  return (
    path.includes('&') || (path.includes('%') && ENDS_PATH.test(foldCase(decodeAll(path, ASCII_CONTROLS))))
  );
}

/** True for `[a-z\d_-]*`. A loop takes half as long as a regular expression, and each name of each query is tested. */
function isPlainName(name: string): boolean {
  for (let index = 0; index < name.length; index += 1) {
    const code = name.charCodeAt(index);
    const isPlain =
      (code >= LOWER_A && code <= LOWER_Z) ||
      (code >= DIGIT_0 && code <= DIGIT_9) ||
      code === UNDERSCORE ||
      code === HYPHEN;
    if (!isPlain) return false;
  }
  return true;
}

/**
 * Normalizes a path as the most lenient server reads it: decoded, in lower case, without dot and empty
 * segments.
 */
export function foldPath(path: string): string {
  if (PLAIN_PATH.test(path)) return path;
  const [text = ''] = foldCase(decodeAll(path)).split('\0', 1);
  return foldSegments(text);
}

function foldSegments(text: string): string {
  const kept: string[] = [];
  for (const segment of segmentsOf(text)) {
    const name = bareName(segment);
    if (segment === '..') kept.pop();
    else if (name !== '') kept.push(name);
  }
  return `/${kept.join('/')}`;
}

/** Splits a decoded path; parameters behind a `;` are dropped. */
function segmentsOf(text: string): string[] {
  return text
    .replaceAll('\\', '/')
    .split('/')
    .map((segment) => segment.split(';', 1)[0] ?? '');
}

/**
 * Returns what lenient servers could read a path as, each as `foldPath` writes it: as it is, and without what could be
 * a host at its start. Undefined: too many, since it depends on the server where the host ends.
 * `folder`: if the path begins with it, servers keep it as it is.
 */
export function lenientReadings(path: string, folder = ''): readonly string[] | undefined {
  const readings = withLossyReadings(path, folder).map(hostReadings);
  return readings.every((each) => each !== undefined) ? readings.flat() : undefined;
}

/** Returns the path, and what is left of it at servers that drop characters, and those that then look for the query. */
function withLossyReadings(path: string, folder: string): string[] {
  if (!MAY_LEAD_UP.test(path)) return [path];
  const kept = path.startsWith(folder) ? folder : '';
  const text = decodeAll(path.slice(kept.length), ASCII_CONTROLS).replace(HIGH_BYTES, fromUtf8);
  const left = text.replace(SLASHES, '/').replace(DROPPED, '');
  const [start = ''] = left.split(/[?#\uff1f\uff03]/, 1);
  return [path, kept + left, ...(start === left ? [] : [kept + start])];
}

function hostReadings(path: string): readonly string[] | undefined {
  const folded = foldPath(path);
  if (!mayBeginWithHost(path)) return [folded];
  const rest = withoutHost(path);
  if (PLAIN_HOST.test(path) && !mayBeginWithHost(rest)) return [folded, foldPath(rest)];
  const whole = foldSegments(foldCase(decodeAll(path)).replaceAll('\0', '/'));
  return whole.length > LONGEST_WITH_HOST ? undefined : [folded, ...tailsOf(whole)];
}

/** Removes what a URL parser takes for a host at the start of a path: `//h/x` becomes `/x`. */
export function withoutHost(path: string): string {
  return path.replace(HOST, '') || '/';
}

/** True if the path begins with two slashes once a server has decoded it, or has removed parameters or dot segments. */
function mayBeginWithHost(path: string): boolean {
  if (!MAY_HAVE_HOST.test(path)) return false;
  const [, ...segments] = segmentsOf(foldCase(decodeAll(path)).replaceAll('\0', '/'));
  segments.pop();
  let depth = 0;
  for (const segment of segments) {
    if (segment === '..') depth = Math.max(0, depth - 1);
    else if (bareName(segment) !== '') depth += 1;
    else if (depth === 0 && segment !== '.') return true;
  }
  return false;
}

/** Removes the last extension, which some frameworks treat as the response format, from a folded path. */
export function withoutFormat(folded: string): string {
  const start = folded.lastIndexOf('/') + 1;
  const name = folded.slice(start);
  const dot = name.lastIndexOf('.');
  return dot === -1 ? folded : folded.slice(0, start + bareName(name.slice(0, dot)).length);
}

/** Returns the path from each of its slashes on, and `/`. */
function tailsOf(folded: string): string[] {
  const tails = ['/'];
  for (let slash = folded.indexOf('/'); slash !== -1; slash = folded.indexOf('/', slash + 1))
    tails.push(folded.slice(slash));
  return tails;
}

/**
 * Removes blanks around a name, and what Windows ignores at its end: the stream of `name::$DATA`, and dots. Regular
 * expressions would try each colon or dot as a start, and take quadratic time.
 */
function bareName(name: string): string {
  const stream = name.indexOf(':$');
  let [start, end] = [0, stream === -1 ? name.length : stream];
  if (stream !== -1) while (name[end - 1] === ':') end -= 1;
  while (end > 0 && (name[end - 1] === '.' || BLANK.test(name.charAt(end - 1)))) end -= 1;
  while (start < end && BLANK.test(name.charAt(start))) start += 1;
  return name.slice(start, end);
}

/**
 * True if the path stays in a folder on every server, whether or not it resolves dot segments (RFC 3986 §5.2.4) and
 * merges slashes. A path whose segments depend on who decodes it stays in none: each `..` could remove another one.
 */
export function staysWithin(path: string, folder: string): boolean {
  return (
    !MAY_LEAD_UP.test(path) || withLossyReadings(path, folder).every((each) => neverLeaves(each, folder))
  );
}

function neverLeaves(path: string, folder: string): boolean {
  const lenient = foldCase(decodeAll(path)).replaceAll('\\', '/').split('/').map(lenientKind);
  if (!lenient.includes('..')) return true;
  const plain = path.split('/').map(plainKind);
  if (plain.length !== lenient.length || plain.some((kind, at) => kind !== lenient[at])) return false;
  const start = `${withoutDotSegments(folder)}/`;
  return [path, withPlainDots(path)]
    .flatMap((reading) => [reading, reading.replace(/\/{2,}/g, '/')])
    .every((reading) => `${withoutDotSegments(reading)}/`.startsWith(start));
}

/** Decodes dots, which servers do that follow the WHATWG. */
function withPlainDots(path: string): string {
  return path.replace(/%2e/gi, '.');
}

/** Returns what moves between folders as it is, and `name` for a name. */
function plainKind(segment: string): string {
  const dots = withPlainDots(segment);
  return dots === '' || dots === '.' || dots === '..' ? dots : 'name';
}

/**
 * The same for a server that decodes all it can, ends a name at `;` or NUL, and ignores what Windows does behind `..`.
 */
function lenientKind(segment: string): string {
  const [text = ''] = segment.split(/[;\0]/, 1);
  const name = text.trim();
  if (name === '' || name === '.') return name;
  return /^\.\.(?:$|[+:])/.test(name) ? '..' : 'name';
}

/** True if no server takes a decoded segment for more than one name, or for one of the folder above. */
export function isSingleName(segment: string): boolean {
  const folded = foldCase(segment);
  return lenientKind(folded) === 'name' && !/[/\\]/.test(folded) && segment.search(SLASHES) === -1;
}

function withoutDotSegments(path: string): string {
  const kept: string[] = [];
  for (const segment of path.split('/')) {
    if (segment === '..') kept.splice(Math.max(1, kept.length - 1));
    else if (segment !== '.') kept.push(segment);
  }
  return kept.join('/');
}

/**
 * Removes case and look-alikes: fullwidth letters, the long s and the Kelvin sign become their ASCII
 * counterparts (NFKD and simple case mapping); accents and zero-width characters are dropped.
 */
function foldCase(text: string): string {
  if (ASCII.test(text)) return text.toLowerCase();
  const read = text.replace(HIGH_BYTES, (bytes) => {
    const decoded = fromUtf8(bytes);
    return decoded.includes('\ufffd') ? bytes : decoded;
  });
  return read
    .normalize('NFKD')
    .replace(/[\p{M}\p{Default_Ignorable_Code_Point}]/gu, '')
    .toUpperCase()
    .toLowerCase();
}

/**
 * Decodes all that any server could, and drops the percent signs that are left: classic ASP reads `s%ite` as `site`.
 * `dropped`: what goes before the next pass, as in `%2%0ae`.
 */
function decodeAll(text: string, dropped?: RegExp): string {
  let decoded = text;
  for (let pass = 0; pass < PASSES && decoded.includes('%'); pass += 1) {
    decoded = decoded.replace(ENCODED, (_encoded, wide?: string, narrow?: string) =>
      String.fromCharCode(Number.parseInt(wide ?? narrow ?? '', 16)),
    );
    if (dropped !== undefined) decoded = decoded.replace(dropped, '');
  }
  return decoded.replaceAll('%', '').replace(OVERLONG, fromOverlong);
}

function fromOverlong(bytes: string): string {
  const [middle = 0, last = 0] = Array.from(bytes.slice(-2), (byte) => byte.charCodeAt(0));
  return String.fromCharCode(((middle & 0x1f) << 6) | (last & 0x3f));
}

function fromUtf8(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('utf8');
}
