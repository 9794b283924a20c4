/** Bounds what a 401 can make every later request carry. */
const MAX_COOKIES = 16;
const MAX_LENGTH = 4096;

/**
 * The `name=value` pairs that go back with the answer to a challenge. Attributes are not needed:
 * the pairs go to the origin that set them, and live no longer than the challenge.
 */
export function cookiePairs(setCookies: readonly string[]): readonly string[] {
  const pairs = setCookies.map((line) => line.slice(0, endOfPair(line)).trim());
  return pairs.filter((pair) => pair.indexOf('=') > 0 && pair.length <= MAX_LENGTH).slice(0, MAX_COOKIES);
}

function endOfPair(line: string): number {
  const semicolon = line.indexOf(';');
  return semicolon === -1 ? line.length : semicolon;
}
