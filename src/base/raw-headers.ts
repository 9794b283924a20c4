/**
 * Header fields as they stand on the wire: name, value, name, value …, in order and with repetitions. Names keep their
 * case; values are Latin-1 text.
 */
export type RawHeaders = readonly string[];

export const NO_FIELDS: RawHeaders = [];

/** RFC 9110 §5.6.2. */
const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/;
/** RFC 9110 §5.5: no control character but the tab, and nothing above Latin-1. */
const NOT_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

/** True if the text is a token, as a method or the name of a field is. */
export function isToken(text: string): boolean {
  return TOKEN.test(text);
}

/**
 * True if the text can be the value of a field or a reason phrase. A CR or LF alone would end the line for some
 * programs, and a character above FF is cut to one byte when it is written, which may be one of these.
 */
export function isFieldValue(text: string): boolean {
  return !NOT_IN_VALUE.test(text);
}

/** Returns the values of a field, one for each line. `name` is in lower case, here and below. */
export function fieldValues(headers: RawHeaders, name: string): string[] {
  const found: string[] = [];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    if (isNamed(headers[at] ?? '', name)) found.push(headers[at + 1] ?? '');
  }
  return found;
}

/** Returns the first value of a field; undefined: there is none. */
export function fieldValue(headers: RawHeaders, name: string): string | undefined {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    if (isNamed(headers[at] ?? '', name)) return headers[at + 1];
  }
  return undefined;
}

/**
 * Returns the values of all lines of a field as one list (RFC 9110 §5.3); undefined: there is none. Lines of a field that
 * is not a list become a value that is not valid, so that no reader can choose among them.
 */
export function joinedValue(headers: RawHeaders, name: string): string | undefined {
  let found: string | undefined;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    if (!isNamed(headers[at] ?? '', name)) continue;
    const value = headers[at + 1] ?? '';
    found = found === undefined ? value : `${found}, ${value}`;
  }
  return found;
}

/** Returns the fields without those of this name. */
export function withoutField(headers: RawHeaders, name: string): string[] {
  return headers.filter((_, at) => !isNamed(headers[at - (at % 2)] ?? '', name));
}

/** Neither a letter nor a digit: CGI has `_` in its place, in some servers whatever it is. */
const SEPARATOR = /[^a-z\d]/gi;

/** Names of fields in lower case, to look names in any case up. */
export class FieldNames {
  readonly #names: ReadonlySet<string>;
  /** Lengths and first letters of the names: `shapeOf`. */
  readonly #shapes = new Uint8Array(SHAPES);

  constructor(names: Iterable<string>) {
    this.#names = new Set(names);
    for (const name of this.#names) this.#shapes[shapeOf(name)] = 1;
  }

  /** Most names have another length or first letter, and need not be put in lower case. */
  has(name: string): boolean {
    return this.#shapes[shapeOf(name)] === 1 && this.#names.has(name.toLowerCase());
  }

  /** True if this is another spelling of one of the names that CGI maps to the same variable, such as `X_Real.IP`. */
  resemble(name: string): boolean {
    if (this.#shapes[shapeOf(name)] !== 1) return false;
    const folded = name.replaceAll(SEPARATOR, '-');
    return folded !== name && this.#names.has(folded.toLowerCase());
  }
}

/** Names of fields that begin alike, to look names up in any case and in any spelling that CGI maps to the same. */
export class FieldFamilies {
  /** The starts in lower case, by their first letter. */
  readonly #starts: readonly (readonly string[])[];

  constructor(starts: readonly string[]) {
    this.#starts = Array.from({ length: LETTERS }, (_, letter) =>
      starts.filter((start) => (start.charCodeAt(0) & (LETTERS - 1)) === letter),
    );
  }

  has(name: string): boolean {
    for (const start of this.#starts[name.charCodeAt(0) & (LETTERS - 1)] ?? []) {
      if (beginsWith(name, start)) return true;
    }
    return false;
  }
}

/** Compares without a copy, from the end, where starts of one letter differ most. */
function beginsWith(name: string, start: string): boolean {
  if (name.length < start.length) return false;
  for (let at = start.length - 1; at >= 0; at -= 1) {
    const code = name.charCodeAt(at);
    const wanted = start.charCodeAt(at);
    // 0x20: the letter in lower case.
    if (code !== wanted && (code | 0x20) !== wanted && (wanted !== HYPHEN || isAlphanumeric(code)))
      return false;
  }
  return true;
}

function isAlphanumeric(code: number): boolean {
  const letter = code | 0x20;
  return (letter >= 0x61 && letter <= 0x7a) || (code >= 0x30 && code <= 0x39);
}

const HYPHEN = 0x2d;
const LETTERS = 32;
const SHAPES = 64 * LETTERS;

/** Length and first letter of a name as a number; other names may have the same. Case has no part in it. */
function shapeOf(name: string): number {
  return ((name.length << 5) | (name.charCodeAt(0) & 31)) & (SHAPES - 1);
}

function isNamed(field: string, name: string): boolean {
  if (field.length !== name.length) return false;
  if (field === name) return true;
  // Differences in the first letter are found without a copy in lower case.
  return ((field.charCodeAt(0) ^ name.charCodeAt(0)) & 31) === 0 && field.toLowerCase() === name;
}
