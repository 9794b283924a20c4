/** The path of a target, and its query without the question mark; undefined: it has none. */
export function splitTarget(target: string): { path: string; query: string | undefined } {
  const mark = target.indexOf('?');
  if (mark === -1) return { path: target, query: undefined };
  return { path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/** What one server resolves, decodes, cuts off or refuses, and another takes as it stands. */
const AMBIGUOUS = new RegExp(
  [
    '[\\\\;]',
    '//',
    '/\\.{1,2}(?:/|$)',
    '%(?![\\da-f]{2})',
    // Control characters; then . / \ % ; ? # and what needs no encoding (RFC 3986 §2.3).
    '%(?:[01][\\da-f]|7f)',
    '%(?:2[def35]|3[\\dbf]|4[1-9a-f]|5[\\dacf]|6[1-9a-f]|7[\\dae])',
    // Overlong UTF-8.
    '%(?:c[01]|e0%[89]|f0%8)',
  ].join('|'),
  'i',
);

/** Whether two servers could read the path in two ways. */
export function isAmbiguous(path: string): boolean {
  return AMBIGUOUS.test(path);
}

/** Whether a segment is one segment, and the same one, for every server. */
export function isPlainSegment(segment: string): boolean {
  if (segment === '') return false;
  let decoded: string;
  try {
    decoded = segment.includes('%') ? decodeURIComponent(segment) : segment;
  } catch {
    return false;
  }
  return decoded !== '.' && decoded !== '..' && !/[/\\%;?#\p{Cc}]/u.test(decoded);
}
