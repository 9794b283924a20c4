import {
  claimedIssuer,
  type IssuerExternals,
  type IssuerSettings,
  TokenIssuer,
  type TokenVerdict,
} from './token-issuer.ts';

export interface TokenExternals {
  readonly clock: IssuerExternals['clock'];
  /** Called when the keys of an issuer become unreachable or reachable again. */
  readonly onReachable: (issuer: string, reachable: boolean, reason: string) => void;
}

/** The configured token issuers. */
export class Tokens {
  readonly #issuers: ReadonlyMap<string, TokenIssuer>;

  constructor(issuers: readonly IssuerSettings[], { clock, onReachable }: TokenExternals) {
    this.#issuers = new Map(
      issuers.map((settings) => {
        const { issuer } = settings;
        const tell = (reachable: boolean, reason: string) => onReachable(issuer, reachable, reason);
        return [issuer, new TokenIssuer(settings, { clock, onReachable: tell })];
      }),
    );
  }

  /** Fetches all keys before the first token arrives. Never rejects. */
  async prefetch(): Promise<void> {
    await Promise.all(Array.from(this.#issuers.values(), (issuer) => issuer.prefetch()));
  }

  async verify(token: string): Promise<TokenVerdict> {
    const name = claimedIssuer(token);
    if (name === undefined) return { fault: 'is no signed JWT' };
    const issuer = this.#issuers.get(name);
    return issuer?.verify(token) ?? { fault: 'is from an unknown issuer' };
  }
}
