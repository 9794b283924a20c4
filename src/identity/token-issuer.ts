import { isNativeError } from 'node:util/types';
import {
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  type FlattenedJWSInput,
  type JWTHeaderParameters,
  type JWTPayload,
  jwtVerify,
} from 'jose';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { GatewayError } from '../base/errors.ts';

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
/** Pause between fetches for an unknown key id, in milliseconds: any client can send such an id. */
const UNKNOWN_KEY_PAUSE_MS = 10_000;
/** Pause after a failed fetch, in milliseconds. */
const FAILURE_PAUSE_MS = 1_000;
const FETCH_LIMIT_MS = 5_000;

export interface IssuerSettings {
  /** The value of `iss` in tokens. */
  readonly issuer: string;
  /** URL of the issuer's public keys (RFC 7517 §5). */
  readonly jwksUrl: string;
}

export interface IssuerExternals {
  readonly clock: Clock;
  /** Called when the keys become unreachable or reachable again; once for each change. */
  readonly onReachable: (reachable: boolean, reason: string) => void;
}

/** Result of verifying a token; `unavailable`: the keys cannot be fetched. */
export type TokenVerdict =
  | { readonly payload: JWTPayload }
  | { readonly fault: string }
  | { readonly unavailable: GatewayError };

/** Returns the `iss` of an unverified token; undefined if it is not a JWT. */
export function claimedIssuer(token: string): string | undefined {
  try {
    return decodeJwt(token).iss ?? '';
  } catch {
    return undefined;
  }
}

/** Verifies the tokens of one issuer with its published keys. */
export class TokenIssuer {
  readonly #issuer: string;
  readonly #clock: Clock;
  readonly #onReachable: IssuerExternals['onReachable'];
  readonly #keys: ReturnType<typeof createRemoteJWKSet>;
  /** Start of the fetch that brought the current keys. */
  #fetchedAt = Number.NEGATIVE_INFINITY;
  #failedAt = Number.NEGATIVE_INFINITY;
  #reachable = true;

  constructor({ issuer, jwksUrl }: IssuerSettings, { clock, onReachable }: IssuerExternals) {
    this.#issuer = issuer;
    this.#clock = clock;
    this.#onReachable = onReachable;
    this.#keys = createRemoteJWKSet(new URL(jwksUrl), {
      cacheMaxAge: MAX_AGE_MS,
      // The pause after an unknown key is handled below, on the gateway's clock.
      cooldownDuration: Number.POSITIVE_INFINITY,
      timeoutDuration: FETCH_LIMIT_MS,
      [customFetch]: (url, options) => this.#fetch(url, options),
    });
  }

  /** Fetches the keys before the first token arrives. Never rejects. */
  async prefetch(): Promise<void> {
    await this.#keys.reload().catch(() => undefined);
  }

  /** Verifies signature, issuer and validity period. Never rejects. */
  async verify(token: string): Promise<TokenVerdict> {
    try {
      const { payload } = await jwtVerify(token, (header, input) => this.#keyOf(header, input), {
        issuer: this.#issuer,
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_TOLERANCE_S,
        requiredClaims: ['exp'],
      });
      return { payload };
    } catch (error) {
      if (error instanceof GatewayError) return { unavailable: error };
      return { fault: faultOf(error) };
    }
  }

  async #keyOf(header: JWTHeaderParameters, input: FlattenedJWSInput) {
    if (this.#since(this.#fetchedAt) > REFRESH_MS) void this.prefetch();
    try {
      return await this.#keys(header, input);
    } catch (error) {
      if (
        errorCode(error) !== 'ERR_JWKS_NO_MATCHING_KEY' ||
        this.#since(this.#fetchedAt) < UNKNOWN_KEY_PAUSE_MS
      ) {
        throw error;
      }
    }
    await this.#keys.reload();
    return this.#keys(header, input);
  }

  #since(then: number): number {
    return this.#clock.now() - then;
  }

  /** Reads the whole response here, so that every error is reported in the same way. */
  async #fetch(url: string, options: RequestInit): Promise<Response> {
    if (this.#since(this.#failedAt) < FAILURE_PAUSE_MS) throw unavailable(undefined);
    const begun = this.#clock.now();
    try {
      const answer = await fetch(url, options);
      const keys: unknown = await answer.json();
      if (answer.status !== 200 || !isKeySet(keys)) throw new Error(`status ${answer.status}, no key set`);
      this.#fetchedAt = begun;
      this.#tell(true, '');
      return Response.json(keys);
    } catch (error) {
      this.#failedAt = this.#clock.now();
      this.#tell(false, reasonOf(error));
      throw unavailable(error);
    }
  }

  #tell(reachable: boolean, reason: string): void {
    if (reachable === this.#reachable) return;
    this.#reachable = reachable;
    this.#onReachable(reachable, reason);
  }
}

function isKeySet(value: unknown): boolean {
  return (
    isObject(value) &&
    'keys' in value &&
    Array.isArray(value.keys) &&
    value.keys.every((key) => isObject(key))
  );
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function unavailable(cause: unknown): GatewayError {
  return new GatewayError(
    'identity-unavailable',
    'The Bearer token cannot be checked: the public keys of its issuer cannot be fetched. Send the request again.',
    cause,
  );
}

/** Adds the cause, because the message of fetch is only "fetch failed". */
function reasonOf(error: unknown): string {
  if (!isNativeError(error)) return String(error);
  return isNativeError(error.cause) ? `${error.message}: ${error.cause.message}` : error.message;
}

/** Error codes of jose, as text for the sender of the token. */
const FAULTS: Readonly<Record<string, string>> = {
  ERR_JWT_EXPIRED: 'has expired',
  ERR_JOSE_ALG_NOT_ALLOWED: 'is not signed with a public-key algorithm',
  ERR_JWKS_NO_MATCHING_KEY: 'is signed with a key that its issuer does not publish',
  ERR_JWKS_MULTIPLE_MATCHING_KEYS: 'does not say with which key of its issuer it is signed (kid)',
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: 'has a wrong signature',
};

function faultOf(error: unknown): string {
  const code = errorCode(error);
  if (code === 'ERR_JWT_CLAIM_VALIDATION_FAILED' && isNativeError(error) && 'claim' in error) {
    return error.claim === 'nbf' ? 'is not valid yet' : `has no right claim ${String(error.claim)}`;
  }
  return FAULTS[code] ?? 'is no signed JWT';
}
