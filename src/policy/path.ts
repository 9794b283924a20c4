import { isSingleName } from './spelling.ts';

/** Splits a target into path and query; the query has no question mark and is undefined if absent. */
export function splitTarget(target: string): { path: string; query: string | undefined } {
  const mark = target.indexOf('?');
  if (mark === -1) return { path: target, query: undefined };
  return { path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/** Characters that servers treat differently: some resolve or truncate them, others keep them. */
const AMBIGUOUS = /[\\;]|\/\/|\/\.{1,2}(?:\/|$)/;
/**
 * Encodings that some servers decode, and others keep or refuse: broken ones, control characters, . / \ % ; ? #, and
 * characters that need no encoding (RFC 3986 §2.3).
 */
const AMBIGUOUS_ENCODING =
  /%(?![\da-f]{2})|%(?:[01][\da-f]|7f|2[def35]|3[\dbf]|4[1-9a-f]|5[\dacf]|6[1-9a-f]|7[\dae])/i;
const OVERLONG = /%(?:c[01]|e0%[89]|f0%8)/i;

/** True if servers could read the path differently. */
export function isAmbiguous(path: string): boolean {
  if (AMBIGUOUS.test(path)) return true;
  return path.includes('%') && (AMBIGUOUS_ENCODING.test(path) || OVERLONG.test(path));
}

const PLAIN_SEGMENT = /^[\w-]+$/;

/** True if every server reads the segment as the same single segment. */
export function isPlainSegment(segment: string): boolean {
  if (PLAIN_SEGMENT.test(segment)) return true;
  if (segment === '') return false;
  let decoded: string;
  try {
    decoded = segment.includes('%') ? decodeURIComponent(segment) : segment;
  } catch {
    return false;
  }
  return isSingleName(decoded) && !/[%;?#\p{Cc}]/u.test(decoded);
}

/**
 * Removes the prefix that only clients see from a target (path and query). Targets without it are returned
 * unchanged, because requests for the upstream's URL or a deployment's own host need no prefix.
 */
export function withoutPrefix(target: string, prefix: string | undefined): string {
  if (prefix === undefined || !target.startsWith(prefix)) return target;
  const rest = target.slice(prefix.length);
  if (rest === '' || rest.startsWith('?')) return `/${rest}`;
  return rest.startsWith('/') ? rest : target;
}

/** Adds the site before the other parameters, since servers may ignore the last of many; no other byte changes. */
export function withSite(target: string, parameter: string, site: string): string {
  const mark = target.indexOf('?');
  const added = `${parameter}=${encodeURIComponent(site)}`;
  if (mark === -1) return `${target}?${added}`;
  const rest = target.slice(mark + 1);
  return `${target.slice(0, mark)}?${added}${rest === '' ? '' : `&${rest}`}`;
}

/** Maps prefixes to values. A lookup costs one step per distinct length, not per prefix. */
export class PrefixMap<T> {
  readonly #values = new Map<string, T>();
  /** Distinct lengths, the longest first. */
  readonly #lengths: readonly number[];

  /** The first entry of a prefix wins. */
  constructor(entries: Iterable<readonly [prefix: string, value: T]>) {
    for (const [prefix, value] of entries) if (!this.#values.has(prefix)) this.#values.set(prefix, value);
    const lengths = new Set(Array.from(this.#values.keys(), ({ length }) => length));
    this.#lengths = [...lengths].sort((a, b) => b - a);
  }

  /** Returns the value of the longest prefix that ends with a segment of the path; undefined if there is none. */
  longest(path: string): T | undefined {
    for (const length of this.#lengths) {
      const next = path[length];
      const endsSegment = next === undefined || next === '/' || next === '?' || path[length - 1] === '/';
      if (length > path.length || !endsSegment) continue;
      const value = this.#values.get(path.slice(0, length));
      if (value !== undefined) return value;
    }
    return undefined;
  }
}
