/** The field breaks the grammar or passes a bound. The message never quotes the field. */
export class DigestSyntaxError extends Error {
  override readonly name = 'DigestSyntaxError';
}

const TAB = 0x09;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const EQUALS = 0x3d;
const BACKSLASH = 0x5c;

const ALPHANUMERIC = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
const TOKEN = classOf(`!#$%&'*+-.^_\`|~${ALPHANUMERIC}`);
const TOKEN68 = classOf(`-._~+/${ALPHANUMERIC}`);

function classOf(members: string): Uint8Array {
  const table = new Uint8Array(256);
  for (const member of members) table[member.charCodeAt(0)] = 1;
  return table;
}

/** Characters of a quoted-string, escaped or not: RFC 9110 §5.6.4, bytes as Latin-1 text. */
function isQuotable(code: number): boolean {
  return code === TAB || (code >= SPACE && code !== 0x7f && code <= 0xff);
}

/**
 * Characters of an unquoted value: more than a token, since nonces come bare with base64 in them, but
 * nothing that separates or quotes.
 */
function isBare(code: number): boolean {
  return (
    isQuotable(code) &&
    code !== SPACE &&
    code !== TAB &&
    code !== COMMA &&
    code !== QUOTE &&
    code !== BACKSLASH &&
    code !== 0x3b // a semicolon separates in other fields: a list that uses it was not meant as one value
  );
}

/**
 * Reads a comma-separated list from left to right. Each character is read a fixed number of times, whatever
 * the field holds. `token`, `value` and `endElement` throw DigestSyntaxError when what they are named for is
 * not there.
 */
export class Scanner {
  readonly #field: string;
  readonly #valueLength: number;
  #at = 0;

  /** `valueLength` bounds each value, in characters. */
  constructor(field: string, valueLength: number) {
    this.#field = field;
    this.#valueLength = valueLength;
  }

  /** Goes to the next list element, over empty ones (RFC 9110 §5.6.1); false at the end of the field. */
  nextElement(): boolean {
    while (this.#code() === COMMA || this.#isBlank()) this.#at += 1;
    return this.#at < this.#field.length;
  }

  atElementEnd(): boolean {
    return this.#at >= this.#field.length || this.#code() === COMMA;
  }

  endElement(): void {
    this.#skipBlanks();
    if (!this.atElementEnd()) throw this.#fault('expected a comma');
  }

  token(): string {
    const start = this.#at;
    this.#skipClass(TOKEN);
    if (this.#at === start) throw this.#fault('expected a token');
    const token = this.#field.slice(start, this.#at);
    this.#skipBlanks();
    return token;
  }

  /** Takes an equals sign and the blanks that senders wrongly put after it (RFC 9110 §5.6.3). */
  takeEquals(): boolean {
    if (this.#code() !== EQUALS) return false;
    this.#at += 1;
    this.#skipBlanks();
    return true;
  }

  /** A quoted-string without its quotes and escapes, or an unquoted value. */
  value(): string {
    const value = this.#code() === QUOTE ? this.#quoted() : this.#bare();
    if (value.length > this.#valueLength) throw this.#fault('value too long');
    return value;
  }

  /**
   * Passes over a token68 that is alone in its list element, whose end is not reached yet; false, and nothing passed,
   * when there is none.
   */
  skipToken68(): boolean {
    const start = this.#at;
    this.#skipClass(TOKEN68);
    while (this.#code() === EQUALS) this.#at += 1;
    this.#skipBlanks();
    if (this.atElementEnd()) return true;
    this.#at = start;
    return false;
  }

  #bare(): string {
    const start = this.#at;
    while (isBare(this.#code())) this.#at += 1;
    return this.#field.slice(start, this.#at);
  }

  #quoted(): string {
    this.#at += 1;
    const start = this.#at;
    let escapes = 0;
    for (let code = this.#code(); code !== QUOTE; code = this.#code()) {
      if (code === BACKSLASH) {
        this.#at += 1;
        escapes += 1;
      }
      // Escaped or not: a CR or LF that is let in here would come out in our own request.
      if (!isQuotable(this.#code())) throw this.#fault('quoted string cut off or with a control character');
      this.#at += 1;
    }
    const escaped = this.#field.slice(start, this.#at);
    this.#at += 1;
    return escapes === 0 ? escaped : unescaped(escaped, escapes);
  }

  #skipClass(table: Uint8Array): void {
    while (table[this.#code()] === 1) this.#at += 1;
  }

  #skipBlanks(): void {
    while (this.#isBlank()) this.#at += 1;
  }

  #isBlank(): boolean {
    const code = this.#code();
    return code === SPACE || code === TAB;
  }

  /** NaN at the end, which no comparison and no class matches. */
  #code(): number {
    return this.#field.charCodeAt(this.#at);
  }

  #fault(what: string): DigestSyntaxError {
    return new DigestSyntaxError(`${what} at character ${this.#at + 1}`);
  }
}

/** Into a buffer, since a string that grows by pieces of one character takes a hundred times the memory. */
function unescaped(escaped: string, escapes: number): string {
  const bytes = Buffer.alloc(escaped.length - escapes);
  for (let from = 0, to = 0; to < bytes.length; from += 1, to += 1) {
    if (escaped.charCodeAt(from) === BACKSLASH) from += 1;
    bytes[to] = escaped.charCodeAt(from);
  }
  return bytes.toString('latin1');
}
