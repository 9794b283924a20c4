import { claimedIssuer, type IssuerSettings, TokenIssuer, type TokenVerdict } from './token-issuer.ts';

export interface TokensDeps {
  /** Called when the keys of an issuer become unreachable or reachable again. */
  readonly onReachable: (issuer: string, reachable: boolean, reason: string) => void;
}

/** The configured token issuers. */
export class Tokens {
  readonly #issuers: ReadonlyMap<string, TokenIssuer>;

  constructor(issuers: readonly IssuerSettings[], { onReachable }: TokensDeps) {
    this.#issuers = new Map(
      issuers.map((settings) => {
        const { issuer } = settings;
        const tell = (reachable: boolean, reason: string) => onReachable(issuer, reachable, reason);
        return [issuer, new TokenIssuer(settings, { onReachable: tell })];
      }),
    );
  }

  /** Fetches all keys before the first token arrives. Never rejects. */
  async prefetch(): Promise<void> {
    await Promise.all(Array.from(this.#issuers.values(), (issuer) => issuer.prefetch()));
  }

  async verify(token: string): Promise<TokenVerdict> {
    const name = claimedIssuer(token);
    if (name === undefined) return { rejected: 'is no signed JWT' };
    const issuer = this.#issuers.get(name);
    return issuer?.verify(token) ?? { rejected: 'is from an unknown issuer' };
  }
}
