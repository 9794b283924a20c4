import { equalInConstantTime } from '../base/secret.ts';
import type { PreparedAnswer } from './authorization.ts';
import { findQop, fitsNonce, type Qop } from './challenge.ts';
import { DigestSyntaxError, type ParameterList, parseParameterList } from './parameters.ts';

/** Authentication-Info of a response, RFC 7616 §3.5. Undefined: the parameter is missing. */
export interface AuthenticationInfo {
  /** Neither empty nor too long to be sent. */
  readonly nextnonce: string | undefined;
  readonly rspauth: string | undefined;
  readonly qop: Qop | undefined;
  readonly cnonce: string | undefined;
  readonly nc: number | undefined;
}

/** The request that the response answers. */
export interface SentRequest {
  readonly uri: string;
  readonly nc: number;
  readonly cnonce: string;
  /** Hex of H(entity-body) of the response; needed when `proofNeedsBody`. Absent: an empty body. */
  readonly bodyHash?: string | undefined;
}

export type ProofVerdict = 'absent' | 'valid' | 'invalid';

const NOTHING: AuthenticationInfo = {
  nextnonce: undefined,
  rspauth: undefined,
  qop: undefined,
  cnonce: undefined,
  nc: undefined,
};

/**
 * The one list that the `Authentication-Info` field lines of a response make up. Everything is undefined
 * when it is broken or contradicts itself. Never throws.
 */
export function parseAuthenticationInfo(fieldLines: readonly string[]): AuthenticationInfo {
  try {
    return toInfo(parseParameterList(fieldLines.join(', ')));
  } catch (error) {
    if (error instanceof DigestSyntaxError) return NOTHING;
    throw error;
  }
}

/** True if `checkProof` has to wait for the hash of the response's body. */
export function proofNeedsBody(info: AuthenticationInfo, answer: PreparedAnswer): boolean {
  return info.rspauth !== undefined && (info.qop ?? answer.qop) === 'auth-int';
}

/**
 * Checks that the response comes from a server that knows the credential. `request.cnonce` is the one that
 * `answer` was prepared with.
 */
export function checkProof(
  info: AuthenticationInfo,
  answer: PreparedAnswer,
  request: SentRequest,
): ProofVerdict {
  if (info.rspauth === undefined) return 'absent';
  if (!isAboutThis(info, answer, request)) return 'invalid';
  const { uri, nc, bodyHash } = request;
  const expected = answer.proof({ uri, nc, bodyHash, qop: info.qop });
  return equalInConstantTime(info.rspauth.toLowerCase(), expected) ? 'valid' : 'invalid';
}

/** A proof of another request must not pass for this one, so cnonce and nc, when said, are those sent. */
function isAboutThis(info: AuthenticationInfo, answer: PreparedAnswer, request: SentRequest): boolean {
  // An answer without qop sent no cnonce and no nc: nothing can be proven with them.
  if (answer.qop === undefined) {
    return info.qop === undefined && info.cnonce === undefined && info.nc === undefined;
  }
  return (info.cnonce ?? request.cnonce) === request.cnonce && (info.nc ?? request.nc) === request.nc;
}

function toInfo({ values, contradictory }: ParameterList): AuthenticationInfo {
  const count = values.get('nc');
  const nc = count === undefined ? undefined : parseCount(count);
  if (contradictory || Number.isNaN(nc)) return NOTHING;
  const nextnonce = values.get('nextnonce') ?? '';
  return {
    nextnonce: nextnonce !== '' && fitsNonce(nextnonce) ? nextnonce : undefined,
    rspauth: values.get('rspauth'),
    qop: findQop(values.get('qop') ?? ''),
    cnonce: values.get('cnonce'),
    nc,
  };
}

/** NaN for what is not up to eight hex digits. */
function parseCount(text: string): number {
  return /^[0-9a-f]{1,8}$/i.test(text) ? Number.parseInt(text, 16) : Number.NaN;
}
