import { GatewayError } from '../base/errors.ts';
import type { Secret } from '../base/secret.ts';
import { type AlgorithmName, hash } from './algorithms.ts';
import { type Challenge, chooseChallenge, type Qop } from './challenge.ts';
import { quote, quotedParameter } from './parameters.ts';

/** Unicode text, hashed as UTF-8 after NFC. */
export type Credential = { readonly username: string } & (
  | { readonly password: Secret }
  | { readonly ha1: HashedPassword }
);

/** H(username:realm:password) instead of the password; good for one realm only. */
export interface HashedPassword {
  readonly realm: string;
  /** Lower-case hex; of the algorithm without `-sess`. */
  readonly hashes: Readonly<Partial<Record<AlgorithmName, Secret>>>;
}

export interface AnsweredRequest {
  readonly method: string;
  /** The request target, Latin-1 text, signed byte for byte. */
  readonly uri: string;
  /** Requests sent with this nonce, this one included; ignored without qop. */
  readonly nc: number;
  /** Hex of H(entity-body) of the request, for auth-int; absent: an empty body. */
  readonly bodyHash?: string | undefined;
}

export interface ProvenRequest {
  readonly uri: string;
  readonly nc: number;
  /** Value in the response; absent: the one of the answer. */
  readonly qop?: Qop | undefined;
  /** Hex of H(entity-body) of the response, for auth-int; absent: an empty body. */
  readonly bodyHash?: string | undefined;
}

/** Shows neither the password nor HA1, in whatever way it is printed. */
export interface PreparedAnswer {
  /** Quality of protection of answers: auth when offered, else auth-int, else undefined. */
  readonly qop: Qop | undefined;
  /**
   * The value of `Authorization`, Latin-1 text. Throws RangeError for a count that does not fit into nc, and
   * for a uri with a control character or one above U+00FF.
   */
  authorize(request: AnsweredRequest): string;
  /** The rspauth, in lower case, of a server that knows the credential: RFC 7616 §3.5. */
  proof(request: ProvenRequest): string;
}

const HIGHEST_COUNT = 0xffff_ffff;

/**
 * Everything that stays the same from request to request, computed once; what is left for `authorize` is two
 * hashes. Throws RangeError when the user name, the cnonce or a value of the challenge cannot be sent, and
 * GatewayError `credential-unavailable` unless `canAnswer`.
 */
export function prepareAnswer(challenge: Challenge, credential: Credential, cnonce: string): PreparedAnswer {
  const { nonce, algorithm } = challenge;
  const username = credentialBytes(credential.username);
  const qop = challenge.qop.includes('auth') ? 'auth' : challenge.qop[0];
  const ha1 = hashA1(challenge, username, credential, cnonce);
  const emptyBody = hash(algorithm.name, '');
  const { head, middle, tail } = fixedText(challenge, username, cnonce, qop);

  const secret = `${ha1}:${nonce}:`;
  const protection = `:${cnonce}:${qop}:`;

  const response = (a2: string, count: string, used: Qop | undefined): string => {
    const ha2 = hash(algorithm.name, a2);
    if (used === undefined) return hash(algorithm.name, `${secret}${ha2}`);
    const behind = used === qop ? protection : `:${cnonce}:${used}:`;
    return hash(algorithm.name, `${secret}${count}${behind}${ha2}`);
  };

  return {
    qop,
    authorize: ({ method, uri, nc, bodyHash }) => {
      const body = qop === 'auth-int' ? `:${bodyHash ?? emptyBody}` : '';
      const count = qop === undefined ? '' : countText(nc);
      const proof = response(`${method}:${uri}${body}`, count, qop);
      return `${head}${quote(uri)}${middle}${count}${tail}${proof}"`;
    },
    proof: ({ uri, nc, qop: used = qop, bodyHash }) => {
      const body = used === 'auth-int' ? `:${bodyHash ?? emptyBody}` : '';
      return response(`:${uri}${body}`, used === undefined ? '' : countText(nc), used);
    },
  };
}

/** True if the credential is good for the challenge: a password always is, a hash of one for its realm and algorithm. */
export function canAnswer({ realm, algorithm }: Challenge, credential: Credential): boolean {
  if ('password' in credential) return true;
  const { ha1 } = credential;
  return ha1.hashes[algorithm.name] !== undefined && isRealm(realm, ha1.realm);
}

/**
 * The strongest allowed challenge that the credential is good for. If it is good for none, the strongest
 * allowed one: to answer that says what is missing.
 */
export function chooseFor(
  credential: Credential,
  challenges: readonly Challenge[],
  allowed: readonly AlgorithmName[],
): Challenge | undefined {
  const answerable = challenges.filter((challenge) => canAnswer(challenge, credential));
  return chooseChallenge(answerable, allowed) ?? chooseChallenge(challenges, allowed);
}

function hashA1(challenge: Challenge, username: string, credential: Credential, cnonce: string): string {
  const { realm, nonce, algorithm } = challenge;
  const ha1 =
    'password' in credential
      ? hash(algorithm.name, `${username}:${realm}:${credentialBytes(credential.password.reveal())}`)
      : storedHash(challenge, credential.ha1);
  return algorithm.session ? hash(algorithm.name, `${ha1}:${nonce}:${cnonce}`) : ha1;
}

function storedHash({ realm, algorithm }: Challenge, ha1: HashedPassword): string {
  const stored = ha1.hashes[algorithm.name];
  if (isRealm(realm, ha1.realm) && stored !== undefined) return stored.reveal();
  const other = isRealm(realm, ha1.realm)
    ? `asks for ${algorithm.name}, for which ha1 has no hash`
    : 'asks for another realm than that of ha1';
  throw new GatewayError(
    'credential-unavailable',
    `The upstream ${other}. Add a hash for what it asks, or give the password instead.`,
  );
}

/** Sent as Latin-1 or as UTF-8: servers do both. */
function isRealm(sent: string, configured: string): boolean {
  return sent === configured || sent === credentialBytes(configured);
}

/** The header around its changing parts: head, uri, middle, nc, tail, response. */
function fixedText(challenge: Challenge, username: string, cnonce: string, qop: Qop | undefined) {
  const head = [
    usernameParameter(challenge, username),
    quotedParameter('realm', challenge.realm),
    quotedParameter('nonce', challenge.nonce),
    'uri=',
  ];
  const middle: string[] = [];
  const tail: string[] = [];
  // Bare, as RFC 7616 §3.4 has it: safe only since the token is one that findAlgorithm knows.
  if (challenge.algorithmToken !== undefined) middle.push(`algorithm=${challenge.algorithmToken}`);
  if (challenge.opaque !== undefined) middle.push(quotedParameter('opaque', challenge.opaque));
  if (qop !== undefined) {
    middle.push(quotedParameter('cnonce', cnonce), 'nc=');
    tail.push(`qop=${qop}`);
  }
  if (challenge.userhash) tail.push('userhash=true');
  tail.push('response="');
  return {
    head: `Digest ${head.join(', ')}`,
    middle: middle.map((parameter) => `, ${parameter}`).join(''),
    tail: tail.map((parameter) => `, ${parameter}`).join(''),
  };
}

function countText(nc: number): string {
  if (!Number.isInteger(nc) || nc < 1 || nc > HIGHEST_COUNT) {
    throw new RangeError(`nc is 1 to ${HIGHEST_COUNT}, not ${nc}`);
  }
  return nc.toString(16).padStart(8, '0');
}

/** attr-char of RFC 8187 §3.2.1: all that an extended value may hold without percent-encoding. */
const ATTRIBUTE_CHARACTERS = new Set(
  Buffer.from('!#$&+-.^_`|~ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'),
);

/** ASCII that a quoted-string holds. */
const PLAIN = /^[\t -~]*$/;

/** The UTF-8 bytes of a credential's text, as Latin-1 text; NFC first, as RFC 7616 §4 says. */
export function credentialBytes(text: string): string {
  return Buffer.from(text.normalize('NFC')).toString('latin1');
}

/**
 * The parameter that names the user: hashed, extended or plain (RFC 7616 §3.4.4). `username` is from
 * `credentialBytes`. Throws RangeError when only the plain form is left and cannot hold the name.
 */
export function usernameParameter(challenge: Challenge, username: string): string {
  if (challenge.userhash) {
    return quotedParameter('username', hash(challenge.algorithm.name, `${username}:${challenge.realm}`));
  }
  if (challenge.utf8 && !PLAIN.test(username)) return `username*=UTF-8''${percentEncoded(username)}`;
  return quotedParameter('username', username);
}

function percentEncoded(bytes: string): string {
  return Array.from(Buffer.from(bytes, 'latin1'), (byte) =>
    ATTRIBUTE_CHARACTERS.has(byte)
      ? String.fromCharCode(byte)
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`,
  ).join('');
}
