import { isDeepStrictEqual } from 'node:util';
import type { IssuerSettings, OnReachable, TokenIssuer, TokenVerdict } from './token-issuer.ts';

interface Loaded {
  readonly claimedIssuer: (token: string) => string | undefined;
  readonly issuers: ReadonlyMap<string, TokenIssuer>;
}

/** The configured token issuers. */
export class Tokens {
  readonly #settings: readonly IssuerSettings[];
  readonly #onReachable: OnReachable;
  /** False if no issuer is configured, so that no token can be right. */
  readonly areAccepted: boolean;
  #loaded: Promise<Loaded> | undefined;

  constructor(issuers: readonly IssuerSettings[], onReachable: OnReachable) {
    this.#settings = issuers;
    this.areAccepted = issuers.length > 0;
    this.#onReachable = onReachable;
  }

  /**
   * Fetches all keys before the first token arrives. `running`: those of the active configuration, whose keys serve
   * meanwhile where the settings of the issuer are the same. Never rejects.
   */
  async prefetch(running?: Tokens): Promise<void> {
    if (!this.areAccepted) return;
    const { issuers } = await this.#load(running);
    await Promise.all(Array.from(issuers.values(), (issuer) => issuer.prefetch()));
  }

  async verify(token: string): Promise<TokenVerdict> {
    const { claimedIssuer, issuers } = await this.#load();
    const name = claimedIssuer(token);
    if (name === undefined) return { rejected: 'is not a signed JWT' };
    return issuers.get(name)?.verify(token) ?? { rejected: 'is from an unknown issuer' };
  }

  /** Loads the libraries with the first issuer or token: they take 15 MiB of memory. */
  #load(running?: Tokens): Promise<Loaded> {
    this.#loaded ??= this.#open(running);
    return this.#loaded;
  }

  async #open(running: Tokens | undefined): Promise<Loaded> {
    const { claimedIssuer, TokenIssuer } = await import('./token-issuer.ts');
    const known = running === undefined ? undefined : await running.#loaded;
    const issuers = this.#settings.map((settings) => {
      const before = known?.issuers.get(settings.issuer);
      // Keys of a new one would have to be fetched, while the issuer may be down.
      return before !== undefined && isDeepStrictEqual(before.settings, settings)
        ? before
        : new TokenIssuer(settings, this.#onReachable);
    });
    return { claimedIssuer, issuers: new Map(issuers.map((each) => [each.settings.issuer, each])) };
  }
}
