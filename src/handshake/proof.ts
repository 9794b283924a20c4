import { GatewayError } from '../base/errors.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { bodyHash } from '../digest/algorithms.ts';
import { checkProof, parseAuthenticationInfo, proofNeedsBody } from '../digest/authentication-info.ts';
import type { ExchangeRequest } from './exchange.ts';

/** The parts of the answer that was sent on which the upstream's proof depends. */
export interface SentAnswer {
  readonly uri: string;
  readonly nc: number;
}

/**
 * Returns the `onHead` of an exchange that answers a challenge. It checks the upstream's proof that it knows the
 * password too (rspauth, RFC 7616 §3.5), then calls `accept` with the status and the nonce to use next, if one is
 * named. With auth-int the proof covers the response body: then `accept` is called after the last byte.
 *
 * It throws GatewayError `upstream-proof-invalid` when the proof is wrong.
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
    const check = (responseBodyHash?: string): void => {
      const request = { ...sent, cnonce: nonce.cnonce, bodyHash: responseBodyHash };
      if (checkProof(info, nonce.answer, request) === 'invalid') throw proofInvalid();
      accept(status, info.nextnonce);
    };
    if (!proofNeedsBody(info, nonce.answer)) {
      check();
      return undefined;
    }
    const hash = bodyHash(nonce.challenge.algorithm.name);
    return { update: (chunk) => hash.update(chunk), finish: () => check(hash.digest()) };
  };
}

function proofInvalid(): GatewayError {
  return new GatewayError(
    'upstream-proof-invalid',
    'The upstream did not prove that it knows the credential (rspauth), so its response is withheld. Another server may be answering in its place.',
  );
}
