import { GatewayError } from '../base/errors.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { bodyHash } from '../digest/algorithms.ts';
import {
  type AuthenticationInfo,
  checkProof,
  parseAuthenticationInfo,
  proofNeedsBody,
} from '../digest/authentication-info.ts';
import type { BodyProof, ExchangeRequest } from './exchange.ts';

/** The answer that was sent, as far as the upstream's proof depends on it. */
export interface SentAnswer {
  readonly uri: string;
  readonly nc: number;
}

/**
 * The `onHead` of an exchange that answers a challenge: `accept` is told of the status and of the nonce to use next,
 * once what the upstream says to prove that it knows the password is found right.
 */
export function onProvenHead(
  nonce: Nonce,
  sent: SentAnswer,
  accept: (status: number, nextnonce: string | undefined) => void,
): ExchangeRequest['onHead'] {
  return (status, lines) => {
    if (lines.length === 0) {
      accept(status, undefined);
      return undefined;
    }
    const info = parseAuthenticationInfo(lines);
    return verifyProof(info, nonce, sent, () => accept(status, info.nextnonce));
  };
}

/**
 * Checks the upstream's proof that it knows the password too (rspauth, RFC 7616 §3.5), then calls
 * `accept`. With auth-int the proof covers the answer's body: then the check is what is returned,
 * and `accept` is called after the last byte.
 * @throws GatewayError `upstream-proof-invalid`
 */
export function verifyProof(
  info: AuthenticationInfo,
  nonce: Nonce,
  sent: SentAnswer,
  accept: () => void,
): BodyProof | undefined {
  const check = (responseBodyHash?: string): void => {
    const request = { ...sent, cnonce: nonce.cnonce, bodyHash: responseBodyHash };
    if (checkProof(info, nonce.answer, request) === 'invalid') {
      throw new GatewayError(
        'upstream-proof-invalid',
        'The upstream did not prove that it knows the credential (rspauth), so its response is withheld. Another server may be answering in its place.',
      );
    }
    accept();
  };
  if (!proofNeedsBody(info, nonce.answer)) {
    check();
    return undefined;
  }
  const hash = bodyHash(nonce.challenge.algorithm.name);
  return { update: (chunk) => hash.update(chunk), finish: () => check(hash.digest()) };
}
