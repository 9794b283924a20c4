import { GatewayError } from '../base/errors.ts';
import { foldName } from './spelling.ts';

const AMPERSAND = 0x26;
const SEMICOLON = 0x3b;

/** One parameter of the query, still encoded. */
interface Pair {
  readonly name: string;
  readonly folded: string;
  readonly value: string;
  /** True next to a semicolon, which some servers treat as `&`. */
  readonly semicolon: boolean;
}

/** The parameters of a query. Lookup fails where servers could find different values. */
export class Query {
  readonly #pairs: Pair[] = [];

  /** @param query without the question mark; undefined if the target has none */
  constructor(query: string | undefined) {
    if (query === undefined) return;
    let start = 0;
    let semicolonBefore = false;
    for (let index = 0; index <= query.length; index += 1) {
      const character = query.charCodeAt(index);
      if (character !== AMPERSAND && character !== SEMICOLON && index < query.length) continue;
      const semicolon = character === SEMICOLON;
      this.#add(query.slice(start, index), semicolon || semicolonBefore);
      semicolonBefore = semicolon;
      start = index + 1;
    }
  }

  /**
   * Returns the value of a parameter, still encoded; undefined if absent.
   * @throws GatewayError `parameter-invalid` if servers could find different values
   */
  find(name: string): string | undefined {
    const folded = foldName(name);
    let found: Pair | undefined;
    for (const pair of this.#pairs) {
      if (pair.folded !== folded) continue;
      if (found !== undefined) {
        throw parameterInvalid(name, 'comes more than once, perhaps in another spelling: send it once');
      }
      if (pair.semicolon) {
        throw parameterInvalid(
          name,
          'is next to a semicolon, which servers read differently: write & between parameters, %3B within a value',
        );
      }
      if (pair.name !== name && decoded(pair.name) !== name) {
        throw parameterInvalid(
          name,
          'is spelled in a way that servers read differently: write its name plainly',
        );
      }
      found = pair;
    }
    return found?.value;
  }

  /** True if any server could find such a parameter. */
  has(name: string): boolean {
    const folded = foldName(name);
    return this.#pairs.some((pair) => pair.folded === folded);
  }

  #add(text: string, semicolon: boolean): void {
    const equals = text.indexOf('=');
    const name = equals === -1 ? text : text.slice(0, equals);
    const value = equals === -1 ? '' : text.slice(equals + 1);
    this.#pairs.push({ name, folded: foldName(name), value, semicolon });
  }
}

/** Creates the error for a parameter; the message never contains the value. */
export function parameterInvalid(name: string, reason: string): GatewayError {
  return new GatewayError('parameter-invalid', `The parameter ${name} ${reason}.`);
}

/**
 * Decodes the value of a parameter as in forms: %XX is UTF-8, + is a space.
 * @throws GatewayError `parameter-invalid`
 */
export function decodeValue(name: string, value: string): string {
  const text = decoded(value);
  if (text === undefined) {
    throw parameterInvalid(name, 'is not percent-encoded UTF-8: encode each byte as %XX');
  }
  if (/\p{Cc}/u.test(text)) throw parameterInvalid(name, 'holds a control character: leave it out');
  return text;
}

/**
 * Does the same as `decodeValue`, for a value that every server must read the same way.
 * @throws GatewayError `parameter-invalid`
 */
export function decodeExactly(name: string, value: string): string {
  // Servers that decode forms read a space, others a plus.
  if (value.includes('+')) throw parameterInvalid(name, 'holds a +: write %20 for a space, %2B for a plus');
  return decodeValue(name, value);
}

/** Undefined if the text is not percent-encoded UTF-8. */
function decoded(text: string): string | undefined {
  const spaced = text.includes('+') ? text.replaceAll('+', ' ') : text;
  if (!spaced.includes('%')) return spaced;
  try {
    return decodeURIComponent(spaced);
  } catch {
    return undefined;
  }
}
