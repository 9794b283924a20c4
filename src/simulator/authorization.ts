/** A parsed Authorization header field; text is Latin-1 decoded bytes. */
export interface Credentials {
  /** In lower case. */
  readonly scheme: string;
  /** By lower-case name, unquoted and unescaped; empty for schemes other than Digest. */
  readonly parameters: ReadonlyMap<string, string>;
}

const maxLength = 32_768;

/**
 * Parses `scheme name=value, name="value"` in one pass (RFC 9110 §11.4).
 * @returns undefined if the text is malformed, or a parameter is repeated.
 */
export function readAuthorization(text: string): Credentials | undefined {
  if (text.length > maxLength) return undefined;
  const cursor: Cursor = { text, at: 0 };
  const scheme = readToken(cursor).toLowerCase();
  const parameters = new Map<string, string>();
  if (scheme !== 'digest') return { scheme, parameters };
  skip(cursor, ' \t');
  while (cursor.at < text.length) {
    const name = readToken(cursor).toLowerCase();
    skip(cursor, ' \t');
    if (name === '' || text[cursor.at] !== '=' || parameters.has(name)) return undefined;
    cursor.at += 1;
    skip(cursor, ' \t');
    const value = text[cursor.at] === '"' ? readQuoted(cursor) : readToken(cursor);
    if (value === undefined) return undefined;
    parameters.set(name, value);
    skip(cursor, ' \t');
    if (cursor.at < text.length && text[cursor.at] !== ',') return undefined;
    skip(cursor, ' \t,');
  }
  return { scheme, parameters };
}

interface Cursor {
  readonly text: string;
  at: number;
}

function skip(cursor: Cursor, characters: string): void {
  while (cursor.at < cursor.text.length && characters.includes(cursor.text.charAt(cursor.at))) cursor.at += 1;
}

/** Reads up to a delimiter, so that a sloppy value is refused for its content and not for its syntax. */
function readToken(cursor: Cursor): string {
  const start = cursor.at;
  while (cursor.at < cursor.text.length && !' \t,="'.includes(cursor.text.charAt(cursor.at))) cursor.at += 1;
  return cursor.text.slice(start, cursor.at);
}

function readQuoted(cursor: Cursor): string | undefined {
  const { text } = cursor;
  let value = '';
  for (let at = cursor.at + 1; at < text.length; at += 1) {
    if (text[at] === '"') {
      cursor.at = at + 1;
      return value;
    }
    if (text[at] === '\\') at += 1;
    value += text.charAt(at);
  }
  return undefined;
}
