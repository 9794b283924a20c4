import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** What a request says to prove who sent it. */
export interface PresentedKey {
  /** With Basic: whose key it is said to be. */
  readonly id: string | undefined;
  readonly key: string;
}

interface HashedKey {
  readonly id: string;
  readonly sha256: Buffer;
}

/** The API keys of all clients, by their SHA-256. */
export class ApiKeys {
  readonly #keys: readonly HashedKey[];

  /** `apiKeySha256` in hex. */
  constructor(clients: readonly { id: string; apiKeySha256: readonly string[] }[]) {
    this.#keys = clients.flatMap(({ id, apiKeySha256 }) =>
      apiKeySha256.map((hex) => ({ id, sha256: Buffer.from(hex, 'hex') })),
    );
  }

  /**
   * Whose key it is; undefined: nobody's, or not that of the client that is named. Compares with every key,
   * each in constant time: how long it takes tells neither which ids exist nor how near a guess was.
   */
  ownerOf({ id, key }: PresentedKey): string | undefined {
    const sha256 = hash('sha256', key, 'buffer');
    let owner: string | undefined;
    for (const known of this.#keys) {
      if (timingSafeEqual(known.sha256, sha256)) owner = known.id;
    }
    return id === undefined || id === owner ? owner : undefined;
  }
}

/**
 * The API key of a request: X-Api-Key, else Basic with the client's id as user name. A client that uses the
 * gateway as its proxy says it in Proxy-Authorization, and Authorization may be meant for the upstream.
 */
export function presentedKey(headers: IncomingHttpHeaders): PresentedKey | undefined {
  const key = headers['x-api-key'];
  if (typeof key === 'string' && key !== '') return { id: undefined, key };
  const basic = credentialsOf(headers, 'basic');
  if (basic === undefined) return undefined;
  const decoded = Buffer.from(basic, 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  const password = decoded.slice(colon + 1);
  return colon < 1 || password === '' ? undefined : { id: decoded.slice(0, colon), key: password };
}

/** The token of a Bearer (RFC 6750 §2.1). */
export function presentedToken(headers: IncomingHttpHeaders): string | undefined {
  return credentialsOf(headers, 'bearer');
}

function credentialsOf(headers: IncomingHttpHeaders, scheme: string): string | undefined {
  const value = headers['proxy-authorization'] ?? headers.authorization;
  if (value === undefined || value.slice(0, scheme.length).toLowerCase() !== scheme) return undefined;
  const credentials = value.slice(scheme.length);
  return credentials.startsWith(' ') ? credentials.trim() : undefined;
}
