/**
 * Header fields as they stand on the wire: name, value, name, value …, in order and with repetitions. Names keep their
 * case; values are Latin-1 text.
 */
export type RawHeaders = readonly string[];

/** Returns the first value of the field of this name (lower case); undefined if there is none. */
export function rawHeader(headers: RawHeaders, name: string): string | undefined {
  for (let at = 0; at < headers.length; at += 2) {
    if (headers[at]?.toLowerCase() === name) return headers[at + 1];
  }
  return undefined;
}

/** Returns the fields without those of this name (lower case). */
export function withoutRawHeader(headers: RawHeaders, name: string): string[] {
  return headers.filter((_, at) => headers[at - (at % 2)]?.toLowerCase() !== name);
}
