/**
 * The most cookies of one challenge, and the most characters of all together: they go back with every request.
 * Apache httpd refuses a field of more than 8 KiB, Tomcat that much of all headers.
 */
const MAX_COOKIES = 16;
const MAX_LENGTH = 4096;

/** Characters of a Cookie field: no control character, no separator, no character outside Latin-1. */
const PAIR = /^[ -:<>-~\u0080-\u00ff]+=[ -:<-~\u0080-\u00ff]*$/;

/**
 * The `name=value` pairs that go back with the answer to a challenge, as many as a request can carry. Attributes
 * are not needed: the pairs go to the origin that set them, and live no longer than the challenge.
 */
export function cookiePairs(setCookies: readonly string[]): readonly string[] {
  const pairs: string[] = [];
  let length = 0;
  for (const line of setCookies) {
    const pair = line.slice(0, endOfPair(line)).trim();
    if (!PAIR.test(pair) || length + pair.length > MAX_LENGTH) continue;
    pairs.push(pair);
    length += pair.length;
    if (pairs.length === MAX_COOKIES) break;
  }
  return pairs;
}

function endOfPair(line: string): number {
  const semicolon = line.indexOf(';');
  return semicolon === -1 ? line.length : semicolon;
}
