import { randomBytes } from 'node:crypto';
import type { EncryptJWT, jwtDecrypt } from 'jose';
import type { Configuration } from 'openid-client';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { isGuardedUrl } from '../base/network.ts';
import { Secret } from '../base/secret.ts';
import { discover, type OpenIdProvider, reasonOf } from '../identity/openid-provider.ts';
import { ControlError, type ControlErrorCode } from './control-error.ts';
import { type Claims, claimIn, operatorFrom, type RoleRules, type SignedIn } from './operators.ts';

/** Path of the redirect URI, under `publicUrl`. */
export const CALLBACK = '/login/callback';
/** How long a sign-in may take, from the start to the return from the provider, in milliseconds. */
export const SIGN_IN_MS = 600_000;

/** Age at which the discovery document is fetched again, in milliseconds. */
const FRESH_MS = 3_600_000;
/** Pause after a failed fetch, in milliseconds: anyone can start a sign-in. */
const FAILURE_PAUSE_MS = 1_000;
/** Longest ID token that is kept with a session, for the URL for signing out, in characters. */
const MAX_HINT = 4_096;

export interface OidcOptions extends OpenIdProvider {
  /** Origin of the console in browsers. */
  readonly publicUrl: string;
  readonly scopes: readonly string[];
  readonly roles: RoleRules;
}

/** A sign-in that failed. `reason` is for the log: the page has only the sentence of the code. */
export class SignInError extends ControlError {
  readonly reason: string;

  constructor(code: ControlErrorCode, cause: unknown) {
    super(code);
    this.reason = reasonOf(cause);
  }
}

/** The values that a browser keeps between the start of a sign-in and its return. */
interface Transaction {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

/** The sign-in at one OpenID provider: authorization code with PKCE, state and nonce. */
export class OidcClient {
  readonly #options: OidcOptions;
  readonly #clock: Clock;
  /** Random for each process: what it encrypts is of no use to another one. */
  readonly #key = randomBytes(32);
  #discovered: { readonly configuration: Promise<Configuration>; readonly at: number } | undefined;
  #failure: { readonly error: SignInError; readonly at: number } | undefined;

  constructor(options: OidcOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  /**
   * Begins a sign-in: the URL at the provider, and a text for a cookie of the browser.
   * @throws SignInError if the provider cannot be used
   */
  async begin(): Promise<{ readonly url: string; readonly transaction: string }> {
    const client = await import('openid-client');
    const configuration = await this.#configuration();
    const transaction: Transaction = {
      state: client.randomState(),
      nonce: client.randomNonce(),
      verifier: client.randomPKCECodeVerifier(),
    };
    const url = client.buildAuthorizationUrl(configuration, {
      redirect_uri: this.#redirectUri,
      scope: ['openid', ...this.#options.scopes].join(' '),
      code_challenge: await client.calculatePKCECodeChallenge(transaction.verifier),
      code_challenge_method: 'S256',
      state: transaction.state,
      nonce: transaction.nonce,
    });
    return { url: url.href, transaction: await this.#sealed(transaction) };
  }

  /**
   * Finds the sign-in that a return from the provider belongs to, without asking that. `search`: the query of the return;
   * `sealed`: the text from `begin`.
   * @throws SignInError if there is none
   */
  async resume(search: string, sealed: string | undefined): Promise<Transaction> {
    const transaction = await this.#opened(sealed);
    if (new URLSearchParams(search).get('state') === transaction.state) return transaction;
    throw new SignInError('sign-in-invalid', new Error('the state is that of another sign-in'));
  }

  /**
   * Completes a sign-in with the query of the return from the provider.
   * @throws ControlError if the sign-in failed, or gives no role
   */
  async complete(search: string, transaction: Transaction): Promise<SignedIn> {
    const client = await import('openid-client');
    const configuration = await this.#configuration();
    const { claims, idToken } = await this.#redeem(client, configuration, search, transaction).catch(
      (error: unknown) => {
        throw error instanceof ControlError ? error : new SignInError(codeOf(error), error);
      },
    );
    return { ...operatorFrom(claims, this.#options.roles), idToken: new Secret(idToken) };
  }

  /** Returns where a person signs out at the provider; undefined: it offers no such place. */
  async signOutUrl(idToken: Secret): Promise<string | undefined> {
    const client = await import('openid-client');
    const configuration = await this.#configuration();
    const { end_session_endpoint: endpoint = '' } = configuration.serverMetadata();
    if (!isGuardedUrl(endpoint)) return undefined;
    const hint = idToken.reveal();
    return client.buildEndSessionUrl(configuration, {
      post_logout_redirect_uri: `${this.#options.publicUrl}/login`,
      ...(hint !== '' && { id_token_hint: hint }),
    }).href;
  }

  get #redirectUri(): string {
    return `${this.#options.publicUrl}${CALLBACK}`;
  }

  async #redeem(
    client: typeof import('openid-client'),
    configuration: Configuration,
    search: string,
    { state, nonce, verifier }: Transaction,
  ): Promise<{ readonly claims: Claims; readonly idToken: string }> {
    const url = new URL(`${this.#redirectUri}${search}`);
    const tokens = await client.authorizationCodeGrant(configuration, url, {
      pkceCodeVerifier: verifier,
      expectedState: state,
      expectedNonce: nonce,
      idTokenExpected: true,
    });
    const claims: Claims & { readonly sub: string } = tokens.claims() ?? { sub: '' };
    const { claim, nameClaim } = this.#options.roles;
    const isWhole = [claim, nameClaim].every((name) => claimIn(claims, name) !== undefined);
    const hasUserInfo = configuration.serverMetadata().userinfo_endpoint !== undefined;
    const { id_token: whole = '' } = tokens;
    const idToken = whole.length > MAX_HINT ? '' : whole;
    if (isWhole || !hasUserInfo) return { claims, idToken };
    const more = await client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
    // A signed claim counts before one of userinfo, also the member `b` of a signed `a` before an unsigned `a.b`.
    const found = [claim, nameClaim].map((name) => {
      const signed = claimIn(claims, name);
      return [name, signed === undefined ? claimIn(more, name) : signed] as const;
    });
    return { claims: { sub: claims.sub, ...Object.fromEntries(found) }, idToken };
  }

  /** Returns what discovery found, which is kept for an hour. */
  async #configuration(): Promise<Configuration> {
    const now = this.#clock.now();
    if (this.#failure !== undefined && now - this.#failure.at < FAILURE_PAUSE_MS) throw this.#failure.error;
    if (this.#discovered === undefined || now - this.#discovered.at >= FRESH_MS) {
      this.#discovered = { configuration: discover(this.#options), at: now };
    }
    const { configuration } = this.#discovered;
    try {
      return await configuration;
    } catch (cause) {
      const error = new SignInError('sign-in-unavailable', cause);
      // Others wait for the same fetch; the next sign-in makes another one.
      if (this.#discovered?.configuration === configuration) this.#discovered = undefined;
      this.#failure = { error, at: this.#clock.now() };
      throw error;
    }
  }

  async #sealed(transaction: Transaction): Promise<string> {
    const jose: { readonly EncryptJWT: typeof EncryptJWT } = await import('jose');
    return new jose.EncryptJWT({ ...transaction })
      .setProtectedHeader({ alg: 'dir', enc: 'A256GCM' })
      .setExpirationTime(`${SIGN_IN_MS / 1000}s`)
      .encrypt(this.#key);
  }

  /** @throws ControlError for a text that this process did not encrypt, or that has expired */
  async #opened(sealed: string | undefined): Promise<Transaction> {
    const jose: { readonly jwtDecrypt: typeof jwtDecrypt } = await import('jose');
    try {
      const { payload } = await jose.jwtDecrypt<Transaction>(sealed ?? '', this.#key);
      return payload;
    } catch (cause) {
      throw new SignInError('sign-in-expired', cause);
    }
  }
}

/** Codes of openid-client that mean something else than an invalid response. */
const CODES: Readonly<Record<string, ControlErrorCode>> = {
  OAUTH_AUTHORIZATION_RESPONSE_ERROR: 'sign-in-denied',
  OAUTH_RESPONSE_BODY_ERROR: 'sign-in-rejected',
  OAUTH_WWW_AUTHENTICATE_CHALLENGE: 'sign-in-rejected',
  OAUTH_JWT_TIMESTAMP_CHECK_FAILED: 'sign-in-clock',
  OAUTH_RESPONSE_IS_NOT_CONFORM: 'sign-in-unavailable',
  OAUTH_TIMEOUT: 'sign-in-unavailable',
  OAUTH_ABORT: 'sign-in-unavailable',
};

function codeOf(error: unknown): ControlErrorCode {
  const code = errorCode(error);
  if (code.startsWith('OAUTH_')) return CODES[code] ?? 'sign-in-invalid';
  // undici's fetch: no connection, or one that broke.
  return error instanceof TypeError && error.message === 'fetch failed'
    ? 'sign-in-unavailable'
    : 'sign-in-invalid';
}
