import type { IssuerSettings, TokenIssuer, TokenVerdict } from './token-issuer.ts';

interface Loaded {
  readonly claimedIssuer: (token: string) => string | undefined;
  readonly issuers: ReadonlyMap<string, TokenIssuer>;
}

/** The configured token issuers. */
export class Tokens {
  readonly #settings: readonly IssuerSettings[];
  readonly #onReachable: (issuer: string, reachable: boolean, reason: string) => void;
  /** False if no issuer is configured, so that no token can be right. */
  readonly areAccepted: boolean;
  #loaded: Promise<Loaded> | undefined;

  /** `onReachable` is called when the keys of an issuer become unreachable or reachable again. */
  constructor(
    issuers: readonly IssuerSettings[],
    onReachable: (issuer: string, reachable: boolean, reason: string) => void,
  ) {
    this.#settings = issuers;
    this.areAccepted = issuers.length > 0;
    this.#onReachable = onReachable;
  }

  /** Fetches all keys before the first token arrives. Never rejects. */
  async prefetch(): Promise<void> {
    if (!this.areAccepted) return;
    const { issuers } = await this.#load();
    await Promise.all(Array.from(issuers.values(), (issuer) => issuer.prefetch()));
  }

  async verify(token: string): Promise<TokenVerdict> {
    const { claimedIssuer, issuers } = await this.#load();
    const name = claimedIssuer(token);
    if (name === undefined) return { rejected: 'is not a signed JWT' };
    return issuers.get(name)?.verify(token) ?? { rejected: 'is from an unknown issuer' };
  }

  /** Loads the libraries with the first issuer or token: they take 15 MiB of memory. */
  #load(): Promise<Loaded> {
    this.#loaded ??= import('./token-issuer.ts').then(({ claimedIssuer, TokenIssuer }) => ({
      claimedIssuer,
      issuers: new Map(
        this.#settings.map((settings) => {
          const { issuer } = settings;
          return [issuer, new TokenIssuer(settings, (...state) => this.#onReachable(issuer, ...state))];
        }),
      ),
    }));
    return this.#loaded;
  }
}
