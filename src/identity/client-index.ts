import { hash, randomBytes } from 'node:crypto';
import type { JWTPayload } from 'jose';
import { getOrInsert } from '../base/maps.ts';
import { type Address, type Network, NetworkMap } from '../base/network.ts';
import { type ApiKey, apiKeysOf, keyName } from '../config/api-keys.ts';
import type { Client } from '../policy/rules.ts';
import {
  type CertificateRule,
  certificateTest,
  indexKeysOfCertificate,
  indexKeysOfRule,
  type PresentedCertificate,
} from './certificates.ts';

/** The API key of a request. */
export interface PresentedKey {
  /** With Basic: the client id that the request claims. */
  readonly id: string | undefined;
  readonly key: string;
}

/** The conditions that identify a client: all that it lists must hold, and it lists at least one. */
export interface ClientDescription extends Client {
  readonly identify: {
    readonly addresses?: readonly Network[] | undefined;
    readonly apiKeySha256?: readonly string[] | undefined;
    readonly apiKeys?: readonly ApiKey[] | undefined;
    readonly certificate?: CertificateRule | undefined;
    readonly jwt?: TokenRule | undefined;
  };
}

/** Facts about the sender of a request, from its connection or the proxy that opened it. */
export interface Peer {
  /** Undefined if a trusted proxy did not send it. */
  readonly address: Address | undefined;
  readonly certificate: PresentedCertificate;
  /** True if the certificate is that of a trusted proxy. */
  readonly isProxied: boolean;
}

/** True if the sender itself has a certificate; one that was not accepted counts wherever it comes from. */
export function presentsCertificate({ certificate, isProxied }: Peer): boolean {
  return certificate !== undefined && (!isProxied || 'refused' in certificate);
}

/** A client with its position in the configuration; the first of several matching clients is chosen. */
export interface Ranked {
  readonly client: ClientDescription;
  readonly rank: number;
  /**
   * True if the client has this address and certificate. A client without a rule for certificates has none of its own,
   * but may come through a proxy that has one.
   */
  readonly holds: (peer: Peer) => boolean;
}

/** Compiles the conditions of a client on the connection. */
export function rankClient(client: ClientDescription, rank: number): Ranked {
  const { addresses, certificate: rule } = client.identify;
  const fits = rule === undefined ? undefined : certificateTest(rule);
  return {
    client,
    rank,
    holds: (peer) => {
      const { address, certificate } = peer;
      if (addresses !== undefined) {
        if (address === undefined || !addresses.some((network) => network.contains(address))) return false;
      }
      if (fits === undefined) return !presentsCertificate(peer);
      return certificate !== undefined && 'names' in certificate && fits(certificate);
    },
  };
}

/** Finds clients by the address and certificate of a connection, without a scan of all clients. */
export class ConnectionIndex {
  readonly #byCertificate = new Map<string, Ranked[]>();
  readonly #byNetwork = new NetworkMap<Ranked>();

  /** Adds a client. Must be called in the order of ranks. */
  add(client: Ranked): void {
    const { addresses, certificate } = client.client.identify;
    if (certificate !== undefined) {
      for (const key of indexKeysOfRule(certificate)) file(this.#byCertificate, key, client);
    } else {
      for (const network of addresses ?? []) this.#byNetwork.add(network, client);
    }
  }

  /** Returns the first client that matches the connection. */
  first(peer: Peer): Ranked | undefined {
    const { address, certificate } = peer;
    const fits = (each: Ranked): boolean => each.holds(peer);
    let found: Ranked | undefined;
    if (address !== undefined) {
      for (const filed of this.#byNetwork.holding(address)) found = earlier(filed, found, fits);
    }
    if (certificate !== undefined && 'names' in certificate) {
      for (const key of indexKeysOfCertificate(certificate)) {
        found = earlier(this.#byCertificate.get(key), found, fits);
      }
    }
    return found;
  }
}

/** Finds clients by the claims of a verified token, without a scan of all clients. */
export class TokenIndex {
  /** Each client is stored under its rarest claim. */
  readonly #byClaim = new Map<string, Ranked[]>();
  readonly #claims = new Set<string>();
  /** Number of clients that require a claim. */
  readonly #shares = new Map<string, number>();

  /** Counts the claims of a client. Must be called for every client before the first `add`. */
  expect(rule: TokenRule | undefined): void {
    for (const claim of claimsOf(rule)) {
      const key = JSON.stringify(claim);
      this.#shares.set(key, (this.#shares.get(key) ?? 0) + 1);
    }
  }

  /** Adds a client. Must be called in the order of ranks. */
  add(client: Ranked): void {
    const shareOf = (claim: Claim): number => this.#shares.get(JSON.stringify(claim)) ?? 0;
    const [rarest] = claimsOf(client.client.identify.jwt).sort((a, b) => shareOf(a) - shareOf(b));
    if (rarest === undefined) return;
    this.#claims.add(rarest[0]);
    file(this.#byClaim, JSON.stringify(rarest), client);
  }

  /** Returns the first client that matches the token and the connection. */
  first(payload: JWTPayload, peer: Peer): Ranked | undefined {
    const fits = ({ client, holds }: Ranked): boolean =>
      client.identify.jwt !== undefined && fitsToken(client.identify.jwt, payload) && holds(peer);
    let found: Ranked | undefined;
    for (const name of this.#claims) {
      for (const value of claimValues(payload, name)) {
        found = earlier(this.#byClaim.get(JSON.stringify([name, value])), found, fits);
      }
    }
    return found;
  }
}

/** Returns the first client of `filed`, in order of rank, that fits and precedes `found`; else `found`. */
function earlier(
  filed: readonly Ranked[] = [],
  found: Ranked | undefined,
  fits: (client: Ranked) => boolean,
): Ranked | undefined {
  for (const each of filed) {
    if (found !== undefined && found.rank <= each.rank) return found;
    if (fits(each)) return each;
  }
  return found;
}

type Claim = readonly [name: string, value: string | number | boolean];

function claimsOf(rule: TokenRule | undefined): Claim[] {
  if (rule === undefined) return [];
  const { audience, subject, claims = {} } = rule;
  const ofSubject: Claim[] = subject === undefined ? [] : [['sub', subject]];
  return [['aud', audience], ...ofSubject, ...Object.entries(claims)];
}

function file<T>(map: Map<string, T[]>, key: string, value: T): void {
  getOrInsert(map, key, (): T[] => []).push(value);
}

/** True if requests of the client have an API key. */
export function hasApiKey({ apiKeySha256, apiKeys }: ClientDescription['identify']): boolean {
  return apiKeySha256 !== undefined || apiKeys !== undefined;
}

/** An API key with its client. */
export interface OwnedKey {
  readonly owner: Ranked;
  /** Its note, or the first digits of its hash. */
  readonly name: string;
  /** The first instant at which it no longer holds, in Unix milliseconds; infinity if it has no end. */
  readonly expires: number;
}

/** The API keys of all clients. */
export class ApiKeys {
  readonly #salt = randomBytes(16).toString('hex');
  readonly #owned = new Map<string, OwnedKey>();

  /** Adds the keys of a client. */
  add(owner: Ranked): void {
    for (const key of apiKeysOf(owner.client.identify)) {
      const { sha256, expires = Number.POSITIVE_INFINITY } = key;
      this.#owned.set(this.#blind(sha256), { owner, name: keyName(key), expires });
    }
  }

  /**
   * Returns the key with the client that owns it; undefined if no client does, or another one than the
   * request claims. The work is the same for every key and id, so that its time reveals nothing about them. The caller
   * checks whether the key has ended.
   */
  find({ id, key }: PresentedKey): OwnedKey | undefined {
    const owned = this.#owned.get(this.#blind(hash('sha256', key)));
    return id === undefined || id === owned?.owner.client.id ? owned : undefined;
  }

  /** Salts the hash with a secret, so that the timing of a map lookup reveals nothing about a key. */
  #blind(sha256: string): string {
    return hash('sha256', this.#salt + sha256);
  }
}

/** Conditions on the claims of a client's verified token. */
export interface TokenRule {
  readonly issuer: string;
  readonly audience: string;
  readonly subject?: string | undefined;
  /** Each claim must equal the value, or be a list that contains it. */
  readonly claims?: Readonly<Record<string, string | number | boolean>> | undefined;
}

/** True if the claims of a verified token match the rule. */
export function fitsToken(rule: TokenRule, payload: JWTPayload): boolean {
  return (
    payload.iss === rule.issuer &&
    claimValues(payload, 'aud').includes(rule.audience) &&
    (rule.subject === undefined || payload.sub === rule.subject) &&
    Object.entries(rule.claims ?? {}).every(([name, wanted]) => claimValues(payload, name).includes(wanted))
  );
}

/** Returns the values of a claim: one, those of a list, or `undefined` if it is absent. */
function claimValues(payload: JWTPayload, name: string): readonly unknown[] {
  const claim = Object.hasOwn(payload, name) ? payload[name] : undefined;
  // Scopes are separated by spaces (RFC 8693 §4.2); a rule may have all of them.
  if (name === 'scope' && typeof claim === 'string') return [claim, ...claim.split(' ')];
  return Array.isArray(claim) ? claim : [claim];
}
