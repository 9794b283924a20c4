import { type Algorithm, type AlgorithmName, findAlgorithm, strength } from './algorithms.ts';
import {
  BOUNDS,
  DigestSyntaxError,
  parseChallengeList,
  quotedParameter,
  type SchemeOffer,
} from './parameters.ts';

export type Qop = 'auth' | 'auth-int';

/** A Digest challenge that can be answered. Text is Latin-1, as Node delivers it, unescaped. */
export interface Challenge {
  /** Empty when the upstream left it out. */
  readonly realm: string;
  readonly nonce: string;
  /** undefined: not offered. */
  readonly opaque: string | undefined;
  readonly algorithm: Algorithm;
  /** As the upstream spelled it; undefined: not offered. */
  readonly algorithmToken: string | undefined;
  /** In the order offered; empty: no qop, an answer of RFC 2069. */
  readonly qop: readonly Qop[];
  readonly stale: boolean;
  readonly userhash: boolean;
  /** charset=UTF-8. */
  readonly utf8: boolean;
}

/**
 * The most characters of each value of a challenge. They go back with every request: Tomcat takes 8 KiB for all
 * headers of a request together, Apache httpd for one. A nonce or an opaque can be a signed token.
 */
const LONGEST = { realm: 1024, nonce: 4096, opaque: 4096 } as const;

/**
 * All usable Digest challenges in the field lines of one 401, in their order. A field line that is broken
 * or passes a bound yields none of its challenges; so does a challenge with a value that is too long. Never throws.
 */
export function parseChallenges(fieldLines: readonly string[]): Challenge[] {
  return fieldLines
    .flatMap(offersOf)
    .filter((offer) => offer.scheme === 'digest')
    .slice(0, BOUNDS.challenges)
    .flatMap((offer) => toChallenge(offer) ?? []);
}

/**
 * The strongest whose algorithm, without `-sess`, is among `allowed`; of equals the first. undefined when
 * there is none.
 */
export function chooseChallenge(
  challenges: readonly Challenge[],
  allowed: readonly AlgorithmName[],
): Challenge | undefined {
  let best: Challenge | undefined;
  for (const challenge of challenges) {
    if (!allowed.includes(challenge.algorithm.name)) continue;
    if (best === undefined || strength(challenge.algorithm.name) > strength(best.algorithm.name)) {
      best = challenge;
    }
  }
  return best;
}

/** The same challenge after nextnonce. */
export function withNonce(challenge: Challenge, nonce: string): Challenge {
  return { ...challenge, nonce, stale: false };
}

/** True if a nonce is short enough to be sent with every request. */
export function fitsNonce(nonce: string): boolean {
  return nonce.length <= LONGEST.nonce;
}

/** The challenge as a field line, from which `parseChallenges` reads an equal one. */
export function formatChallenge(challenge: Challenge): string {
  const { realm, nonce, opaque, algorithmToken, qop, stale, userhash, utf8 } = challenge;
  const parameters = [quotedParameter('realm', realm), quotedParameter('nonce', nonce)];
  if (opaque !== undefined) parameters.push(quotedParameter('opaque', opaque));
  if (algorithmToken !== undefined) parameters.push(`algorithm=${algorithmToken}`);
  if (qop.length > 0) parameters.push(quotedParameter('qop', qop.join(',')));
  if (stale) parameters.push('stale=true');
  if (userhash) parameters.push('userhash=true');
  if (utf8) parameters.push('charset=UTF-8');
  return `Digest ${parameters.join(', ')}`;
}

/** True if a 401 or 407 with these field lines offers a scheme; its name in lower case. Never throws. */
export function offersScheme(fieldLines: readonly string[], scheme: string): boolean {
  return fieldLines.flatMap(offersOf).some((offer) => offer.scheme === scheme);
}

/** True if a Digest challenge in these field lines has no realm, which RFC 7616 §3.3 requires. Never throws. */
export function lacksRealm(fieldLines: readonly string[]): boolean {
  return fieldLines
    .flatMap(offersOf)
    .some(({ scheme, parameters }) => scheme === 'digest' && !parameters.values.has('realm'));
}

/** True if a Digest challenge in these field lines, or a line, is longer than what is answered. Never throws. */
export function exceedsLength(fieldLines: readonly string[]): boolean {
  if (fieldLines.some((line) => line.length > BOUNDS.fieldLength)) return true;
  const offers = fieldLines.flatMap(offersOf);
  return offers.some(({ scheme, parameters }) => scheme === 'digest' && isTooLong(parameters.values));
}

/** A qop value that this client knows. */
export function findQop(token: string): Qop | undefined {
  const qop = token.toLowerCase();
  return qop === 'auth' || qop === 'auth-int' ? qop : undefined;
}

function offersOf(fieldLine: string): SchemeOffer[] {
  try {
    return parseChallengeList(fieldLine);
  } catch (error) {
    if (error instanceof DigestSyntaxError) return [];
    throw error;
  }
}

function toChallenge({ parameters }: SchemeOffer): Challenge | undefined {
  const { values } = parameters;
  const nonce = values.get('nonce') ?? '';
  const algorithmToken = values.get('algorithm');
  const algorithm = findAlgorithm(algorithmToken ?? 'MD5');
  const qop = parseQop(values.get('qop') ?? '');
  if (parameters.contradictory || nonce === '' || algorithm === undefined || qop === undefined) {
    return undefined;
  }
  if (isTooLong(values)) return undefined;
  // The server needs the cnonce for HA1 of -sess, and RFC 7616 §3.4 sends it only with a qop.
  if (algorithm.session && qop.length === 0) return undefined;
  return {
    realm: values.get('realm') ?? '',
    nonce,
    opaque: values.get('opaque'),
    algorithm,
    algorithmToken,
    qop,
    stale: isTrue(values.get('stale')),
    userhash: isTrue(values.get('userhash')),
    utf8: values.get('charset')?.toLowerCase() === 'utf-8',
  };
}

function isTooLong(values: ReadonlyMap<string, string>): boolean {
  return Object.entries(LONGEST).some(([name, length]) => (values.get(name)?.length ?? 0) > length);
}

/** Empty for an empty list, which is as good as none; undefined when nothing offered is known. */
function parseQop(list: string): Qop[] | undefined {
  const offered = list
    .split(',')
    .map((token) => token.trim())
    .filter((token) => token !== '');
  const known = offered.flatMap((token) => findQop(token) ?? []);
  return offered.length > 0 && known.length === 0 ? undefined : [...new Set(known)];
}

function isTrue(value: string | undefined): boolean {
  return value?.toLowerCase() === 'true';
}
