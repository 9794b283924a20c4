/** Splits a target into path and query; the query has no question mark and is undefined if absent. */
export function splitTarget(target: string): { path: string; query: string | undefined } {
  const mark = target.indexOf('?');
  if (mark === -1) return { path: target, query: undefined };
  return { path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/**
 * Sequences that servers treat differently: some resolve, decode, truncate or refuse them, others keep
 * them.
 */
const AMBIGUOUS = new RegExp(
  [
    '[\\\\;]',
    '//',
    '/\\.{1,2}(?:/|$)',
    '%(?![\\da-f]{2})',
    // Control characters; then . / \ % ; ? # and characters that need no encoding (RFC 3986 §2.3).
    '%(?:[01][\\da-f]|7f)',
    '%(?:2[def35]|3[\\dbf]|4[1-9a-f]|5[\\dacf]|6[1-9a-f]|7[\\dae])',
    // Overlong UTF-8.
    '%(?:c[01]|e0%[89]|f0%8)',
  ].join('|'),
  'i',
);

/** True if servers could read the path differently. */
export function isAmbiguous(path: string): boolean {
  return AMBIGUOUS.test(path);
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
