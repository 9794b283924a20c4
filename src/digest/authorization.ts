import type { Secret } from '../base/secret.ts';
import { hash } from './algorithms.ts';
import type { Challenge, Qop } from './challenge.ts';
import { quote, quotedParameter } from './parameters.ts';
import { credentialBytes, usernameParameter } from './username.ts';

/** Unicode text, hashed as UTF-8 after NFC. */
export interface Credential {
  readonly username: string;
  readonly password: Secret;
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
  /** What the response says it used; absent: what the answer used. */
  readonly qop?: Qop | undefined;
  /** Hex of H(entity-body) of the response, for auth-int; absent: an empty body. */
  readonly bodyHash?: string | undefined;
}

/** Shows neither the password nor HA1, in whatever way it is printed. */
export interface PreparedAnswer {
  readonly challenge: Challenge;
  /** What answers use: auth when offered, else auth-int, else undefined. */
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
 * hashes. Throws RangeError when the user name, the cnonce or a value of the challenge cannot be sent.
 */
export function prepareAnswer(challenge: Challenge, credential: Credential, cnonce: string): PreparedAnswer {
  const { nonce, algorithm } = challenge;
  const username = credentialBytes(credential.username);
  const qop = challenge.qop.includes('auth') ? 'auth' : challenge.qop[0];
  const ha1 = hashA1(challenge, username, credential.password, cnonce);
  const emptyBody = hash(algorithm.name, '');
  const { head, middle, tail } = fixedText(challenge, username, cnonce, qop);

  const response = (a2: string, count: string, used: Qop | undefined): string => {
    const ha2 = hash(algorithm.name, a2);
    const covered = used === undefined ? ha2 : `${count}:${cnonce}:${used}:${ha2}`;
    return hash(algorithm.name, `${ha1}:${nonce}:${covered}`);
  };

  return {
    challenge,
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

function hashA1(challenge: Challenge, username: string, password: Secret, cnonce: string): string {
  const { realm, nonce, algorithm } = challenge;
  const ha1 = hash(algorithm.name, `${username}:${realm}:${credentialBytes(password.reveal())}`);
  return algorithm.session ? hash(algorithm.name, `${ha1}:${nonce}:${cnonce}`) : ha1;
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
