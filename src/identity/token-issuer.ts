import { isNativeError } from 'node:util/types';
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  type ExportedJWKSCache,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwksCache,
  jwtVerify,
} from 'jose';
import { Agent, request } from 'undici';
import { errorCode } from '../base/error-code.ts';
import { GatewayError } from '../base/errors.ts';
import { reportDefect } from '../base/expected-errors.ts';

/** Public-key signatures only: symmetric algorithms and "none" are excluded. */
const ALGORITHMS = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
];
/** Tolerated clock difference, in seconds. */
const CLOCK_TOLERANCE_S = 30;
/** Age at which keys are refreshed in the background, in milliseconds. */
const REFRESH_MS = 600_000;
/** Age at which keys are no longer used, in milliseconds. */
const MAX_AGE_MS = 86_400_000;
/** Age at which an unknown key id leads to a fetch, in milliseconds: any client can send such an id. */
const UNKNOWN_KEY_PAUSE_MS = 10_000;
/** Pause after a failed fetch, in milliseconds. */
const FAILURE_PAUSE_MS = 1_000;
/** Time limit of a fetch, in milliseconds. */
const FETCH_LIMIT_MS = 5_000;
/** Maximum size of a key set, in bytes; hundreds of keys fit. */
const LARGEST = 1024 * 1024;
/** Bounds the bytes of a response. */
const dispatcher = new Agent({ maxResponseSize: LARGEST });

export interface IssuerSettings {
  /** The value of `iss` in tokens. */
  readonly issuer: string;
  /** URL of the issuer's public keys (RFC 7517 §5). */
  readonly jwksUrl: string;
}

/** Called when the keys of an issuer become unreachable or reachable again; once for each change. */
export type OnReachable = (issuer: string, reachable: boolean, reason: string) => void;

/** Result of verifying a token; `unavailable`: the keys cannot be fetched. */
export type TokenVerdict =
  | { readonly payload: JWTPayload }
  /** The reason, as it follows "a Bearer token that …". */
  | { readonly rejected: string }
  | { readonly unavailable: GatewayError };

/** Returns the `iss` of an unverified token; undefined if it is not a JWT. */
export function claimedIssuer(token: string): string | undefined {
  try {
    return decodeJwt(token).iss ?? '';
  } catch {
    return undefined;
  }
}

/** Verifies the tokens of one issuer with its published keys, which jose fetches and caches. */
export class TokenIssuer {
  readonly settings: IssuerSettings;
  readonly #onReachable: OnReachable;
  readonly #keys: ReturnType<typeof createRemoteJWKSet>;
  /** Written by jose: the keys, and in `uat` the time of the fetch. Empty before the first one. */
  readonly #cache: Partial<ExportedJWKSCache> = {};
  #failedAt = Number.NEGATIVE_INFINITY;
  #reachable = true;

  constructor(settings: IssuerSettings, onReachable: OnReachable) {
    this.settings = settings;
    this.#onReachable = onReachable;
    this.#keys = createRemoteJWKSet(new URL(settings.jwksUrl), {
      cacheMaxAge: MAX_AGE_MS,
      cooldownDuration: UNKNOWN_KEY_PAUSE_MS,
      timeoutDuration: FETCH_LIMIT_MS,
      [jwksCache]: this.#cache as Record<string, never>,
      [customFetch]: (url, { headers, signal }) => this.#fetch(url, headers, signal),
    });
  }

  /** Fetches the keys before the first token arrives. Never rejects. */
  async prefetch(): Promise<void> {
    await this.#keys.reload().catch(reportDefect);
  }

  /** Verifies signature, issuer and validity period. Never rejects. */
  async verify(token: string): Promise<TokenVerdict> {
    try {
      const { payload } = await jwtVerify(token, this.#keyOf, {
        issuer: this.settings.issuer,
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_TOLERANCE_S,
        requiredClaims: ['exp'],
      });
      return { payload };
    } catch (error) {
      if (error instanceof GatewayError) return { unavailable: error };
      return { rejected: reasonOfRejection(error) };
    }
  }

  /** Starts a refresh long before jose stops using the keys, so that the issuer may be down in between. */
  readonly #keyOf: JWTVerifyGetKey = (header, input) => {
    const { uat } = this.#cache;
    const age = uat === undefined ? 0 : Date.now() - uat;
    // Below 0 the clock has gone back: jose would not fetch until it is there again.
    if (age > REFRESH_MS || age < 0) void this.prefetch();
    return this.#keys(header, input);
  };

  /**
   * Fetches the keys for jose, which reports no failure of its own refreshes and does not bound their size. Pauses
   * after a failure, because the pause of jose counts from the last success only.
   */
  async #fetch(url: string, headers: Headers, signal: AbortSignal): Promise<Response> {
    const pausedMs = Date.now() - this.#failedAt;
    if (pausedMs >= 0 && pausedMs < FAILURE_PAUSE_MS) throw unavailable(undefined);
    try {
      const { statusCode, body } = await request(url, { headers, signal, dispatcher });
      if (statusCode !== 200) {
        await body.dump();
        throw new Error(`status ${statusCode} instead of 200`);
      }
      const keys = (await body.json()) as JSONWebKeySet;
      // Throws if it is not a key set.
      createLocalJWKSet(keys);
      this.#reportReachable(true, '');
      return Response.json(keys);
    } catch (error) {
      this.#failedAt = Date.now();
      this.#reportReachable(false, reasonOf(error));
      throw unavailable(error);
    }
  }

  #reportReachable(reachable: boolean, reason: string): void {
    if (reachable === this.#reachable) return;
    this.#reachable = reachable;
    this.#onReachable(this.settings.issuer, reachable, reason);
  }
}

function unavailable(cause: unknown): GatewayError {
  return new GatewayError(
    'identity-unavailable',
    'The Bearer token cannot be checked: the public keys of its issuer cannot be fetched. Send the request again.',
    cause,
  );
}

/** Returns the message; the code in its place if several addresses were tried, since that error has none. */
function reasonOf(error: unknown): string {
  return (isNativeError(error) && error.message) || errorCode(error) || String(error);
}

/** Error codes of jose, as text for the sender of the token. */
const REJECTIONS: Readonly<Record<string, string>> = {
  ERR_JWT_EXPIRED: 'has expired',
  ERR_JOSE_ALG_NOT_ALLOWED: 'is not signed with a public-key algorithm',
  ERR_JWKS_NO_MATCHING_KEY: 'is signed with a key that its issuer does not publish',
  ERR_JWKS_MULTIPLE_MATCHING_KEYS: 'does not say with which key of its issuer it is signed (kid)',
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: 'has a wrong signature',
};

function reasonOfRejection(error: unknown): string {
  const code = errorCode(error);
  if (code === 'ERR_JWT_CLAIM_VALIDATION_FAILED' && isNativeError(error) && 'claim' in error) {
    return error.claim === 'nbf' ? 'is not valid yet' : `has no right claim ${String(error.claim)}`;
  }
  return REJECTIONS[code] ?? 'is not a signed JWT';
}
