import { GatewayError } from '../base/errors.ts';
import { foldName } from './spelling.ts';

const AMPERSAND = 0x26;
const SEMICOLON = 0x3b;

/** One parameter as it stands in the query, nothing decoded. */
interface Pair {
  readonly name: string;
  readonly folded: string;
  readonly value: string;
  /** A semicolon stands before or after it, which some servers take for `&`. */
  readonly semicolon: boolean;
}

/** The parameters of a query, found only where every server finds the same. */
export class Query {
  readonly #pairs: Pair[] = [];

  /** @param query without the question mark; undefined: the target has none */
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
   * The value of a parameter, still encoded; undefined: it is not there.
   * @throws GatewayError `parameter-invalid` when servers could find different ones
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

  /** Whether any server could find such a parameter. */
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

/** Names the parameter and what is wrong with it; the value itself is never quoted. */
export function parameterInvalid(name: string, reason: string): GatewayError {
  return new GatewayError('parameter-invalid', `The parameter ${name} ${reason}.`);
}

/**
 * The value of a parameter, decoded as forms are: %XX is UTF-8, + a space.
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
 * As `decodeValue`, for a value that must be the same for every server.
 * @throws GatewayError `parameter-invalid`
 */
export function decodeExactly(name: string, value: string): string {
  // To a server that decodes forms it is a space, to another one a plus.
  if (value.includes('+')) throw parameterInvalid(name, 'holds a +: write %20 for a space, %2B for a plus');
  return decodeValue(name, value);
}

/** undefined: it is not percent-encoded UTF-8. */
function decoded(text: string): string | undefined {
  const spaced = text.includes('+') ? text.replaceAll('+', ' ') : text;
  if (!spaced.includes('%')) return spaced;
  try {
    return decodeURIComponent(spaced);
  } catch {
    return undefined;
  }
}
