import { hash, randomBytes } from 'node:crypto';
import { joinedValue, type RawHeaders } from '../base/raw-headers.ts';

/** The API key of a request. */
export interface PresentedKey {
  /** With Basic: the client id that the request claims. */
  readonly id: string | undefined;
  readonly key: string;
}

/** The API keys of all clients. */
export class ApiKeys {
  readonly #salt = randomBytes(16).toString('hex');
  readonly #owners = new Map<string, string>();

  /** Adds the keys of a client; `apiKeySha256` in hex. */
  add(id: string, apiKeySha256: readonly string[]): void {
    for (const hex of apiKeySha256) this.#owners.set(this.#blind(hex), id);
  }

  /**
   * Returns the id of the client that owns the key; undefined if no client does, or another one than the
   * request claims. The work is the same for every key and id, so that its time reveals nothing about them.
   */
  ownerOf({ id, key }: PresentedKey): string | undefined {
    const owner = this.#owners.get(this.#blind(hash('sha256', key)));
    return id === undefined || id === owner ? owner : undefined;
  }

  /** Salts the hash with a secret, so that the timing of a map lookup reveals nothing about a key. */
  #blind(sha256: string): string {
    return hash('sha256', this.#salt + sha256);
  }
}

/**
 * Returns the API key of a request: X-Api-Key, else Basic with the client's id as user name. A client that
 * uses the gateway as its proxy sends Proxy-Authorization; its Authorization may be meant for the upstream.
 */
export function presentedKey(headers: RawHeaders): PresentedKey | undefined {
  const key = joinedValue(headers, 'x-api-key');
  if (key !== undefined && key !== '') return { id: undefined, key };
  const basic = credentialsOf(headers, 'basic');
  if (basic === undefined) return undefined;
  const decoded = Buffer.from(basic, 'base64').toString('utf8');
  const colon = decoded.indexOf(':');
  const password = decoded.slice(colon + 1);
  return colon < 1 || password === '' ? undefined : { id: decoded.slice(0, colon), key: password };
}

/** Returns the Bearer token of a request (RFC 6750 §2.1). */
export function presentedToken(headers: RawHeaders): string | undefined {
  return credentialsOf(headers, 'bearer');
}

function credentialsOf(headers: RawHeaders, scheme: string): string | undefined {
  const value = joinedValue(headers, 'proxy-authorization') ?? joinedValue(headers, 'authorization');
  if (value === undefined || value.slice(0, scheme.length).toLowerCase() !== scheme) return undefined;
  const credentials = value.slice(scheme.length);
  return credentials.startsWith(' ') ? credentials.trim() : undefined;
}
