import { isFieldValue } from '../base/raw-headers.ts';
import { DigestSyntaxError, Scanner } from './scanner.ts';

export interface ListBounds {
  /** Characters of one field. */
  readonly fieldLength: number;
  /** Challenges of every scheme in one field. */
  readonly challenges: number;
  /** Parameters of one challenge, or of one list without challenges. */
  readonly parameters: number;
  /** Characters of one value, unescaped. */
  readonly valueLength: number;
}

/** Far above what any server sends, and small enough that a hostile one costs nothing. */
export const BOUNDS: ListBounds = {
  fieldLength: 16 * 1024,
  challenges: 16,
  parameters: 32,
  valueLength: 4 * 1024,
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
  return new Scanner(field, bounds.valueLength);
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
