import { isFieldValue } from '../base/raw-headers.ts';

/** The field breaks the grammar or passes a bound. The message never quotes the field. */
export class DigestSyntaxError extends Error {
  override readonly name = 'DigestSyntaxError';
}

export interface ListBounds {
  /** Characters of one field. */
  readonly fieldLength: number;
  /** Challenges of every scheme in one field. */
  readonly challenges: number;
  /** Parameters of one challenge, or of one list without challenges. */
  readonly parameters: number;
}

/** Far above what any server sends, and small enough that a hostile one costs nothing. */
export const BOUNDS: ListBounds = {
  fieldLength: 16 * 1024,
  challenges: 16,
  parameters: 32,
};

/** Values by lower-case name. Never a plain object: a server may name a parameter `__proto__`. */
export interface ParameterList {
  readonly values: ReadonlyMap<string, string>;
  /** One name came with two values, so that no reading of the list is safe. */
  readonly contradictory: boolean;
}

/** One challenge of any scheme. */
export interface SchemeOffer {
  /** In lower case. */
  readonly scheme: string;
  readonly parameters: ParameterList;
}

interface OpenList {
  readonly values: Map<string, string>;
  contradictory: boolean;
}

interface OpenOffer {
  readonly scheme: string;
  readonly parameters: OpenList;
}

/**
 * The challenges in one `WWW-Authenticate` field, in their order: RFC 9110 §11.6.1, with tolerance for
 * what servers really send. Throws DigestSyntaxError.
 */
export function parseChallengeList(field: string, bounds: ListBounds = BOUNDS): SchemeOffer[] {
  const scanner = scan(field, bounds);
  const offers: OpenOffer[] = [];
  let open: OpenOffer | undefined;
  while (scanner.nextElement()) {
    const name = scanner.token();
    if (scanner.takeEquals()) {
      if (open === undefined) throw new DigestSyntaxError('parameter before any scheme');
      add(open.parameters, name, scanner.value(), bounds);
    } else {
      const stray = scanner.atElementEnd() && isStray(name, open);
      const offer = readOffer(scanner, name, bounds);
      offers.push(offer);
      if (offers.length > bounds.challenges) throw new DigestSyntaxError('too many challenges');
      if (!stray) open = offer;
    }
    scanner.endElement();
  }
  return offers;
}

/** The list of an `Authentication-Info` field. Throws DigestSyntaxError. */
export function parseParameterList(field: string, bounds: ListBounds = BOUNDS): ParameterList {
  const scanner = scan(field, bounds);
  const list = emptyList();
  while (scanner.nextElement()) {
    readParameter(scanner, list, bounds);
    scanner.endElement();
  }
  return list;
}

/** Characters that a backslash precedes in a quoted-string. */
const ESCAPED = /["\\]/;

/**
 * `value` as a quoted-string. Throws RangeError for what one cannot hold: a control character other than
 * TAB, or a character that is not a byte.
 */
export function quote(value: string): string {
  if (!isFieldValue(value)) throw new RangeError('a control character or a character above U+00FF');
  return ESCAPED.test(value) ? `"${value.replace(/["\\]/g, '\\$&')}"` : `"${value}"`;
}

/** `name="value"`; throws as `quote` does. */
export function quotedParameter(name: string, value: string): string {
  return `${name}=${quote(value)}`;
}

function scan(field: string, bounds: ListBounds): Scanner {
  if (field.length > bounds.fieldLength) throw new DigestSyntaxError('field too long');
  return new Scanner(field);
}

/**
 * `qop=auth,auth-int, nonce="…"`, a list that lost its quotes, leaves a token alone between commas. What
 * follows it belongs to the challenge before it, as it would if the token were a scheme with nothing to say.
 */
function isStray(token: string, open: OpenOffer | undefined): boolean {
  return open !== undefined && open.parameters.values.size > 0 && token.toLowerCase() !== 'digest';
}

function readOffer(scanner: Scanner, name: string, bounds: ListBounds): OpenOffer {
  const offer = { scheme: name.toLowerCase(), parameters: emptyList() };
  if (scanner.atElementEnd()) return offer;
  // Digest has no token68, so `Digest realm=` is a parameter and not a credential with a pad.
  if (offer.scheme === 'digest' || !scanner.skipToken68()) readParameter(scanner, offer.parameters, bounds);
  return offer;
}

function readParameter(scanner: Scanner, list: OpenList, bounds: ListBounds): void {
  const name = scanner.token();
  if (!scanner.takeEquals()) throw new DigestSyntaxError('parameter without a value');
  add(list, name, scanner.value(), bounds);
}

function add(list: OpenList, name: string, value: string, bounds: ListBounds): void {
  const key = name.toLowerCase();
  const known = list.values.get(key);
  if (known !== undefined && known !== value) list.contradictory = true;
  list.values.set(key, value);
  if (list.values.size > bounds.parameters) throw new DigestSyntaxError('too many parameters');
}

function emptyList(): OpenList {
  return { values: new Map(), contradictory: false };
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
class Scanner {
  readonly #field: string;
  #at = 0;

  constructor(field: string) {
    this.#field = field;
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
    return this.#code() === QUOTE ? this.#quoted() : this.#bare();
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
