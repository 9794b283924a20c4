import { GatewayError } from '../base/errors.ts';
import { fieldValues } from '../base/raw-headers.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { bodyHash } from '../digest/algorithms.ts';
import { checkProof, parseAuthenticationInfo, proofNeedsBody } from '../digest/authentication-info.ts';
import type { UpstreamResponse } from './response.ts';

/** The parts of the answer that was sent on which the upstream's proof depends. */
export interface SentAnswer {
  readonly uri: string;
  readonly nc: number;
}

/**
 * Checks the upstream's proof that it knows the password, too (rspauth, RFC 7616 §3.5), then calls `accept` with the
 * nonce to use next, if one is named. With auth-int the proof covers the body of the response: then it is checked, and
 * `accept` called, once the last byte has come; a reader gets the last piece afterwards.
 * @param field that has the proof
 * @throws GatewayError `upstream-proof-invalid` when the proof is wrong; the response is abandoned
 */
export function proveResponse(
  response: UpstreamResponse,
  field: string,
  nonce: Nonce,
  sent: SentAnswer,
  accept: (nextnonce: string | undefined) => void,
): void {
  const info = parseAuthenticationInfo(fieldValues(response.headers, field));
  const check = (responseBodyHash?: string): void => {
    const request = { ...sent, cnonce: nonce.cnonce, bodyHash: responseBodyHash };
    if (checkProof(info, nonce.answer, request) === 'invalid') throw proofInvalid();
    accept(info.nextnonce);
  };
  if (proofNeedsBody(info, nonce.answer)) {
    const hash = bodyHash(nonce.challenge.algorithm.name);
    response.inspect({ update: (piece) => hash.update(piece), finish: () => check(hash.digest()) }, true);
    return;
  }
  try {
    check();
  } catch (error) {
    response.abandon();
    throw error;
  }
}

function proofInvalid(): GatewayError {
  return new GatewayError(
    'upstream-proof-invalid',
    'The upstream did not prove that it knows the credential (rspauth), so its response is withheld. Another server may be answering in its place.',
  );
}
