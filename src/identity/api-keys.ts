import { hash, randomBytes } from 'node:crypto';
import type { PresentedKey } from './presented.ts';

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
