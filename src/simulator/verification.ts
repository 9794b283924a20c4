import { hash, timingSafeEqual } from 'node:crypto';
import { getOrInsert } from '../base/maps.ts';
import type { Account, algorithmNames } from './settings.ts';

/** An account with its name and hashes in wire form. */
interface KnownAccount {
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
          return getOrInsert(hashes, hash, () =>
            secrets.map((secret) => hashOf(hash, name, wireRealm, secret)),
          );
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

/** A parsed Authorization header field; text is Latin-1 decoded bytes. */
export interface Credentials {
  /** In lower case. */
  readonly scheme: string;
  /** By lower-case name, unquoted and unescaped; empty for schemes other than Digest. */
  readonly parameters: ReadonlyMap<string, string>;
}

const maxLength = 32_768;

/**
 * Parses `scheme name=value, name="value"` in one pass (RFC 9110 §11.4).
 * @returns undefined if the text is malformed, or a parameter is repeated.
 */
export function readAuthorization(text: string): Credentials | undefined {
  if (text.length > maxLength) return undefined;
  const cursor: Cursor = { text, at: 0 };
  const scheme = readToken(cursor).toLowerCase();
  const parameters = new Map<string, string>();
  if (scheme !== 'digest') return { scheme, parameters };
  skip(cursor, ' \t');
  while (cursor.at < text.length) {
    const name = readToken(cursor).toLowerCase();
    skip(cursor, ' \t');
    if (name === '' || text[cursor.at] !== '=' || parameters.has(name)) return undefined;
    cursor.at += 1;
    skip(cursor, ' \t');
    const value = text[cursor.at] === '"' ? readQuoted(cursor) : readToken(cursor);
    if (value === undefined) return undefined;
    parameters.set(name, value);
    skip(cursor, ' \t');
    if (cursor.at < text.length && text[cursor.at] !== ',') return undefined;
    skip(cursor, ' \t,');
  }
  return { scheme, parameters };
}

interface Cursor {
  readonly text: string;
  at: number;
}

function skip(cursor: Cursor, characters: string): void {
  while (cursor.at < cursor.text.length && characters.includes(cursor.text.charAt(cursor.at))) cursor.at += 1;
}

/** Reads up to a delimiter, so that a sloppy value is refused for its content and not for its syntax. */
function readToken(cursor: Cursor): string {
  const start = cursor.at;
  while (cursor.at < cursor.text.length && !' \t,="'.includes(cursor.text.charAt(cursor.at))) cursor.at += 1;
  return cursor.text.slice(start, cursor.at);
}

function readQuoted(cursor: Cursor): string | undefined {
  const { text } = cursor;
  let value = '';
  for (let at = cursor.at + 1; at < text.length; at += 1) {
    if (text[at] === '"') {
      cursor.at = at + 1;
      return value;
    }
    if (text[at] === '\\') at += 1;
    value += text.charAt(at);
  }
  return undefined;
}

/** The offer of a deployment, and the request that an Authorization must fit. */
interface Expectation {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** Latin-1 decoded bytes, as on the wire. */
  readonly realm: string;
  readonly accounts: Accounts;
  /** Empty if no qop was offered. */
  readonly qop: readonly string[];
  readonly algorithms: readonly AlgorithmName[];
  readonly userhash: boolean;
  /** Returns the hex hash of the request's body, for auth-int. */
  bodyHash(hash: HashName): Promise<string>;
}

export const digestFaults = [
  'malformed',
  'realm',
  'uri',
  'algorithm',
  'qop',
  'unknown-user',
  'wrong-response',
] as const;

export type DigestFault = (typeof digestFaults)[number];

/** A correct digest, with the values that Authentication-Info needs. */
export interface Proof {
  readonly account: KnownAccount;
  readonly hash: HashName;
  /** H(A1) in hex. */
  readonly secretHash: string;
  readonly nonce: string;
  readonly uri: string;
  /** Undefined without qop. */
  readonly count: Count | undefined;
}

interface Count {
  readonly qop: 'auth' | 'auth-int';
  /** As sent: eight hex digits. */
  readonly nc: string;
  readonly cnonce: string;
}

/**
 * Checks a digest as RFC 2617 and RFC 7616 define it; the validity of the nonce is not checked.
 * @returns the proof, or the first error.
 */
export async function verify(
  { parameters }: Credentials,
  expected: Expectation,
): Promise<Proof | DigestFault> {
  const nonce = parameters.get('nonce');
  const uri = parameters.get('uri');
  const response = parameters.get('response');
  if (nonce === undefined || uri === undefined || response === undefined) return 'malformed';
  if (parameters.get('realm') !== expected.realm) return 'realm';
  if (uri !== expected.target) return 'uri';
  const algorithm = algorithmOf(parameters, expected.algorithms);
  if (algorithm === undefined) return 'algorithm';
  const { hash, session } = algorithms[algorithm];
  const count = countOf(parameters, expected.qop, session);
  if (typeof count === 'string') return count;
  const account = accountOf(parameters, expected, hash);
  if (account === undefined) return 'unknown-user';
  const cnonce = parameters.get('cnonce') ?? '';
  const bodyHash = count?.qop === 'auth-int' ? await expected.bodyHash(hash) : undefined;
  for (const plainHash of account.secretHashes(hash)) {
    const secretHash = session ? hashOf(hash, plainHash, nonce, cnonce) : plainHash;
    const proof: Proof = { account, hash, secretHash, nonce, uri, count };
    if (same(response, digestOf(proof, expected.method, bodyHash))) return proof;
  }
  return 'wrong-response';
}

/**
 * Computes the digest over a method and the proof's uri. With an empty method it is the server's proof,
 * `rspauth` (RFC 7616 §3.5).
 */
export function digestOf(proof: Proof, method: string, bodyHash: string | undefined): string {
  const { hash, secretHash, nonce, uri, count } = proof;
  const message = bodyHash === undefined ? hashOf(hash, method, uri) : hashOf(hash, method, uri, bodyHash);
  if (count === undefined) return hashOf(hash, secretHash, nonce, message);
  return hashOf(hash, secretHash, nonce, count.nc, count.cnonce, count.qop, message);
}

type Parameters = Credentials['parameters'];

function algorithmOf(parameters: Parameters, offered: readonly AlgorithmName[]): AlgorithmName | undefined {
  const asked = (parameters.get('algorithm') ?? 'MD5').toLowerCase();
  return offered.find((name) => name.toLowerCase() === asked);
}

/** Requires qop exactly if one was offered, and nc and cnonce with it (RFC 2617 §3.2.2). */
function countOf(
  parameters: Parameters,
  offered: readonly string[],
  session: boolean,
): Count | undefined | 'qop' | 'malformed' {
  const qop = parameters.get('qop');
  const nc = parameters.get('nc');
  const cnonce = parameters.get('cnonce');
  if (qop === undefined) {
    if (offered.length > 0) return 'qop';
    return nc === undefined && (cnonce !== undefined) === session ? undefined : 'malformed';
  }
  if (!offered.includes(qop) || (qop !== 'auth' && qop !== 'auth-int')) return 'qop';
  if (nc === undefined || !/^[\da-f]{8}$/i.test(nc) || cnonce === undefined) return 'malformed';
  return { qop, nc, cnonce };
}

function accountOf(
  parameters: Parameters,
  { accounts, userhash }: Expectation,
  hash: HashName,
): KnownAccount | undefined {
  const name = parameters.get('username');
  const extended = parameters.get('username*');
  const hashed = parameters.get('userhash')?.toLowerCase() === 'true';
  if (extended !== undefined) {
    // The two forms exclude each other, and a hash has no extended form (RFC 7616 §3.4).
    const plain = name === undefined && !hashed ? readExtended(extended) : undefined;
    return plain === undefined ? undefined : accounts.find(plain);
  }
  if (name === undefined) return undefined;
  if (hashed) return userhash ? accounts.findByHash(hash, name) : undefined;
  return accounts.find(name);
}

/** Decodes `UTF-8''…` of RFC 5987 to Latin-1 decoded UTF-8. */
function readExtended(value: string): string | undefined {
  const prefix = "utf-8''";
  if (value.slice(0, prefix.length).toLowerCase() !== prefix) return undefined;
  try {
    return Buffer.from(decodeURIComponent(value.slice(prefix.length)), 'utf8').toString('latin1');
  } catch {
    return undefined;
  }
}

function same(given: string, right: string): boolean {
  const a = Buffer.from(given, 'latin1');
  const b = Buffer.from(right, 'latin1');
  return a.length === b.length && timingSafeEqual(a, b);
}

export type AlgorithmName = (typeof algorithmNames)[number];

/** Hash names of Node's crypto; `sha512-256` is a function of its own, not truncated SHA-512. */
export type HashName = 'md5' | 'sha256' | 'sha512-256';

interface Algorithm {
  readonly hash: HashName;
  /** A1 also covers the nonce and the client's nonce (RFC 7616 §3.4.2). */
  readonly session: boolean;
}

export const algorithms: Readonly<Record<AlgorithmName, Algorithm>> = {
  MD5: { hash: 'md5', session: false },
  'MD5-sess': { hash: 'md5', session: true },
  'SHA-256': { hash: 'sha256', session: false },
  'SHA-256-sess': { hash: 'sha256', session: true },
  'SHA-512-256': { hash: 'sha512-256', session: false },
  'SHA-512-256-sess': { hash: 'sha512-256', session: true },
};

/** Returns the lower-case hex hash of the parts joined by colons; each part is Latin-1 decoded bytes. */
export function hashOf(name: HashName, ...parts: readonly string[]): string {
  return hash(name, Buffer.from(parts.join(':'), 'latin1'), 'hex');
}

/** Converts text to UTF-8 bytes decoded as Latin-1, the form of header values in Node. */
export function wireText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}
