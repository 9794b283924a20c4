import { type HashName, hashOf, wireText } from './hashes.ts';
import type { Account } from './settings.ts';

/** An account with its name and hashes in wire form. */
export interface KnownAccount {
  readonly sites: ReadonlySet<string>;
  /** H(username:realm:password) of every accepted password; computed once for each hash. */
  secretHashes(hash: HashName): readonly string[];
}

/** The accounts of one deployment in one realm. */
export class Accounts {
  readonly #byName = new Map<string, KnownAccount>();
  readonly #byHash = new Map<string, KnownAccount>();

  constructor(accounts: readonly Account[], realm: string) {
    const wireRealm = wireText(realm);
    for (const { username, password, otherPasswords = [], sites } of accounts) {
      const name = wireText(username.normalize('NFC'));
      const secrets = [password, ...otherPasswords].map((each) => wireText(each.normalize('NFC')));
      const hashes = new Map<HashName, readonly string[]>();
      const account: KnownAccount = {
        sites: new Set(sites),
        secretHashes(hash) {
          const known = hashes.get(hash) ?? secrets.map((secret) => hashOf(hash, name, wireRealm, secret));
          hashes.set(hash, known);
          return known;
        },
      };
      this.#byName.set(name, account);
      for (const hash of ['md5', 'sha256', 'sha512-256'] as const) {
        this.#byHash.set(`${hash} ${hashOf(hash, name, wireRealm)}`, account);
      }
    }
  }

  /** Finds an account by user name, as Latin-1 decoded UTF-8. */
  find(name: string): KnownAccount | undefined {
    return this.#byName.get(name);
  }

  /** Finds an account by H(username:realm), which `userhash=true` sends (RFC 7616 §3.4.4). */
  findByHash(hash: HashName, name: string): KnownAccount | undefined {
    return this.#byHash.get(`${hash} ${name}`);
  }
}
