import type { IssuerSettings, TokenIssuer, TokenVerdict } from './token-issuer.ts';

export interface TokensDeps {
  /** Called when the keys of an issuer become unreachable or reachable again. */
  readonly onReachable: (issuer: string, reachable: boolean, reason: string) => void;
}

interface Loaded {
  readonly claimedIssuer: (token: string) => string | undefined;
  readonly issuers: ReadonlyMap<string, TokenIssuer>;
}

/** The configured token issuers. */
export class Tokens {
  readonly #settings: readonly IssuerSettings[];
  readonly #deps: TokensDeps;
  #loaded: Promise<Loaded> | undefined;

  constructor(issuers: readonly IssuerSettings[], deps: TokensDeps) {
    this.#settings = issuers;
    this.#deps = deps;
  }

  /** False if no issuer is configured, so that no token can be right. */
  get areAccepted(): boolean {
    return this.#settings.length > 0;
  }

  /** Fetches all keys before the first token arrives. Never rejects. */
  async prefetch(): Promise<void> {
    if (this.#settings.length === 0) return;
    const { issuers } = await this.#load();
    await Promise.all(Array.from(issuers.values(), (issuer) => issuer.prefetch()));
  }

  async verify(token: string): Promise<TokenVerdict> {
    const { claimedIssuer, issuers } = await this.#load();
    const name = claimedIssuer(token);
    if (name === undefined) return { rejected: 'is no signed JWT' };
    return issuers.get(name)?.verify(token) ?? { rejected: 'is from an unknown issuer' };
  }

  /** Loads the libraries with the first issuer or token: they take 15 MiB of memory. */
  #load(): Promise<Loaded> {
    this.#loaded ??= import('./token-issuer.ts').then(({ claimedIssuer, TokenIssuer }) => ({
      claimedIssuer,
      issuers: new Map(
        this.#settings.map((settings) => {
          const { issuer } = settings;
          const onReachable = (reachable: boolean, reason: string) =>
            this.#deps.onReachable(issuer, reachable, reason);
          return [issuer, new TokenIssuer(settings, { onReachable })];
        }),
      ),
    }));
    return this.#loaded;
  }
}
