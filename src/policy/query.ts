import { GatewayError } from '../base/errors.ts';
import { foldName, foldQuery } from './spelling.ts';

/** One parameter of the query. */
interface Pair {
  /** Still encoded, like the value. */
  readonly name: string;
  readonly folded: string;
  readonly value: string;
  /** True next to a semicolon, which some servers treat as `&`. */
  readonly semicolon: boolean;
  /** The decoded value, once it was asked for. */
  text: string | undefined;
}

/** Some servers read the first thousand parameters only; a request for one operation does not need as many. */
const MAX_PARAMETERS = 256;

/** Names, as `foldName` returns them, of parameters that some frameworks use as the method. */
const METHOD_NAME = /^[$_]?(?:x[_-])?(?:http|request)?[_-]?method(?:[_-]?override)?$/;
/** Names by which Zope and Struts call another method than that of the path, whatever the value. */
const CALL_NAME = /^(?:action|method|redirect(?:action)?):|:(?:default_)?(?:action|method)$/;
const METHOD_VALUES: ReadonlySet<string> = new Set([
  ...['get', 'head', 'post', 'put', 'patch', 'delete', 'options', 'copy', 'move', 'mkcol', 'merge'],
]);

/** Names that every server reads the same way. */
const PLAIN_NAME = /^[\w-]*$/;
/** The parameter by whose charset some servers, as Sling, read all others. */
const CHARSET_NAME = '_charset_';

/** Without one of these, a query has no encoded `&`, `;` or `=` in any reading. */
const MAY_HIDE_PAIRS = /%(?:.?%|2[56]|3[bd]|[uc-f])/i;

/** Separates parameters. */
const SEPARATOR = /[&;]/;

const NO_PAIRS: readonly Pair[] = [];

/**
 * The parameters of a query, which is parsed with the first lookup. Lookup fails where servers could find
 * different values.
 */
export class Query {
  readonly #query: string | undefined;
  readonly #path: string;
  #parsed: readonly Pair[] | undefined;
  #decodedFirst: readonly Pair[] | undefined;
  #ofPath: readonly Pair[] | undefined;

  /**
   * @param query without the question mark; undefined if the target has none
   * @param path in which servers could find parameters, too
   */
  constructor(query: string | undefined, path = '') {
    this.#query = query;
    this.#path = path;
  }

  /**
   * Returns the value of a parameter, decoded as in forms: %XX is UTF-8, + is a space. Undefined if absent.
   * @throws GatewayError `parameter-invalid` if servers could find different values
   */
  decode(name: string): string | undefined {
    const pair = this.#find(name);
    return pair && textOf(name, pair);
  }

  /**
   * Does the same as `decode`, for a value that every server must read the same way.
   * @throws GatewayError `parameter-invalid`
   */
  decodeExactly(name: string): string | undefined {
    const pair = this.#find(name);
    // Servers that decode forms read a space, others a plus.
    if (pair?.value.includes('+') === true) {
      throw parameterInvalid(name, 'holds a +: write %20 for a space, %2B for a plus');
    }
    return pair && textOf(name, pair);
  }

  /**
   * True if a server could take a parameter for the method: `_method`, or another such name with a method; or for what to
   * call.
   */
  overridesMethod(): boolean {
    return (
      this.#pairs().some(overrides) ||
      this.#decodedPairs().some(overrides) ||
      this.#pathPairs().some(overrides)
    );
  }

  /**
   * Returns the error for a query of which servers read other parameters than it has; undefined if there is none.
   * PHP reads `a[b`, `a.b` and `a b` as `a_b`; others read brackets, dots and colons as structure, end a name at a NUL, or
   * remove marks before it and percent signs in it. So a name that is not plain is refused unless it is declared.
   */
  ambiguity(isDeclared: (name: string) => boolean): GatewayError | undefined {
    const pairs = this.#pairs();
    const ofPath = this.#pathPairs();
    if (pairs.length + ofPath.length > MAX_PARAMETERS) {
      return new GatewayError(
        'parameter-invalid',
        `The query has more than ${MAX_PARAMETERS} parameters, and a rule depends on it: servers ignore those behind a number of their own. Send fewer.`,
      );
    }
    for (const pair of pairs) if (isOddlyNamed(pair, isDeclared)) return oddName();
    for (const pair of ofPath) {
      // A semicolon in a path can be a part of an identifier. No value follows then.
      if (pair.value !== '' && isOddlyNamed(pair, isDeclared)) return oddName();
    }
    return undefined;
  }

  #find(name: string): Pair | undefined {
    const folded = foldName(name);
    let found: Pair | undefined;
    for (const pair of this.#pairs()) {
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
    const decodedFirst = this.#decodedPairs();
    if (decodedFirst !== NO_PAIRS && countOf(decodedFirst, folded) > (found === undefined ? 0 : 1)) {
      throw parameterInvalid(
        name,
        'stands behind an encoded &, ; or =, which some servers decode before they split the query: leave it out there',
      );
    }
    if (countOf(this.#pathPairs(), folded) > 0) {
      throw parameterInvalid(
        name,
        'stands behind a ; of the path, which some servers make a part of the query: leave it out there',
      );
    }
    return found;
  }

  #pairs(): readonly Pair[] {
    this.#parsed ??= this.#query === undefined ? NO_PAIRS : pairsOf(this.#query);
    return this.#parsed;
  }

  /** The parameters for a server that decodes the query before it splits it; empty if they are the same. */
  #decodedPairs(): readonly Pair[] {
    const query = this.#query;
    this.#decodedFirst ??=
      query !== undefined && MAY_HIDE_PAIRS.test(query) ? pairsOf(foldQuery(query)) : NO_PAIRS;
    return this.#decodedFirst;
  }

  /** The parameters of the path for a server that makes it a part of the query, as many rewrite rules do. */
  #pathPairs(): readonly Pair[] {
    this.#ofPath ??=
      SEPARATOR.test(this.#path) || MAY_HIDE_PAIRS.test(this.#path)
        ? pairsOf(foldQuery(this.#path)).slice(1)
        : NO_PAIRS;
    return this.#ofPath;
  }
}

function isOddlyNamed({ name, folded }: Pair, isDeclared: (name: string) => boolean): boolean {
  const isPlain = PLAIN_NAME.test(name) && folded !== CHARSET_NAME;
  return !isPlain && !isDeclared(decoded(name) ?? name);
}

function oddName(): GatewayError {
  return new GatewayError(
    'parameter-invalid',
    'The name of a parameter has other characters than letters, digits, - and _, or is _charset_. Servers read such names differently, and a rule depends on the query. Leave it out; the operator of this gateway can allow the name: see restricted.parameterNames in the configuration.',
  );
}

function countOf(pairs: readonly Pair[], folded: string): number {
  return pairs.filter((pair) => pair.folded === folded).length;
}

function overrides({ folded, value }: Pair): boolean {
  if (folded === '_method' || (folded.includes(':') && CALL_NAME.test(folded))) return true;
  return folded.includes('method') && METHOD_NAME.test(folded) && METHOD_VALUES.has(foldName(value));
}

function pairsOf(query: string): Pair[] {
  const pairs: Pair[] = [];
  let semicolonBefore = false;
  // Each mark is looked for once: from each pair anew, a long query without one would take quadratic time.
  let [ampersand, semicolon, equals] = [-1, -1, -1];
  for (let start = 0; start <= query.length; ) {
    if (ampersand < start) ampersand = indexOrEnd(query, '&', start);
    if (semicolon < start) semicolon = indexOrEnd(query, ';', start);
    if (equals < start) equals = indexOrEnd(query, '=', start);
    const end = Math.min(ampersand, semicolon);
    const nameEnd = Math.min(equals, end);
    const name = query.slice(start, nameEnd);
    const value = query.slice(nameEnd + 1, end);
    const semicolonAfter = end < ampersand;
    pairs.push({
      name,
      folded: foldName(name),
      value,
      semicolon: semicolonBefore || semicolonAfter,
      text: undefined,
    });
    semicolonBefore = semicolonAfter;
    start = end + 1;
  }
  return pairs;
}

function indexOrEnd(text: string, mark: string, from: number): number {
  const index = text.indexOf(mark, from);
  return index === -1 ? text.length : index;
}

/** Creates the error for a parameter; the message never contains the value. */
export function parameterInvalid(name: string, reason: string): GatewayError {
  return new GatewayError('parameter-invalid', `The parameter ${name} ${reason}.`);
}

function textOf(name: string, pair: Pair): string {
  pair.text ??= decodeValue(name, pair.value);
  return pair.text;
}

function decodeValue(name: string, value: string): string {
  const text = decoded(value);
  if (text === undefined) {
    throw parameterInvalid(name, 'is not percent-encoded UTF-8: encode each byte as %XX');
  }
  if (/\p{Cc}/u.test(text)) throw parameterInvalid(name, 'holds a control character: leave it out');
  return text;
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
