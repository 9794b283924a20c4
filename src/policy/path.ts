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
  return decoded !== '.' && decoded !== '..' && !/[/\\%;?#\p{Cc}]/u.test(decoded);
}
