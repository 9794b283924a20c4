/** How a server treats its nonces. The names are those of the servers that behave so. */
export interface Profile {
  readonly name: string;
  readonly algorithm: 'MD5' | 'SHA-256';
  /** False: no qop, so that answers have no count. */
  readonly counted: boolean;
  readonly lifetimeMs: number;
  /** Lifetime from the first use on; undefined: it does not change. */
  readonly usedLifetimeMs?: number;
  /** The most requests of a nonce; undefined: any number. */
  readonly uses?: number;
  /** `once`: each count once, in any order; `window`: and at most 50 ahead; `rising`: each higher than the last. */
  readonly count: 'ignored' | 'once' | 'window' | 'rising';
  /** Counts from this one on are called stale. */
  readonly countsBelow?: number;
  /** True: a count out of order ends the nonce. */
  readonly killsDisorder?: boolean;
  /** When a nonce is called stale: before the password is looked at, after it was right, or never. */
  readonly stale: 'first' | 'after-password' | 'never';
  /** How it answers a nonce that it does not know, as after a restart, if the password is right. */
  readonly unknown: 'stale' | 'plain';
  readonly nextnonce: 'never' | 'near-end' | 'each';
  readonly rspauth: boolean;
  /** `state`: the latest nonce of an opaque is the only good one. */
  readonly opaque: 'none' | 'fixed' | 'state';
  /** True: a nonce is good for the address only that asked for it. */
  readonly boundToAddress?: boolean;
  /** True: the nonce lives in a session cookie. */
  readonly cookie?: boolean;
  /** True: nonces outlive a restart, since nothing is kept of them but a key. */
  readonly stateless?: boolean;
  /** True: nonces say when they expire, and two that are issued in the same millisecond are the same. */
  readonly timed?: boolean;
}

const USUAL = {
  algorithm: 'MD5',
  counted: true,
  count: 'ignored',
  stale: 'after-password',
  unknown: 'plain',
  nextnonce: 'never',
  rspauth: false,
  opaque: 'none',
} as const;

/** The servers of the field, as research found them. */
export const PROFILES: readonly Profile[] = [
  { ...USUAL, name: 'spring', lifetimeMs: 300_000, stateless: true, timed: true },
  {
    ...USUAL,
    name: 'tomcat',
    algorithm: 'SHA-256',
    lifetimeMs: 300_000,
    count: 'window',
    opaque: 'fixed',
    boundToAddress: true,
  },
  {
    ...USUAL,
    name: 'jetty',
    lifetimeMs: 60_000,
    count: 'once',
    countsBelow: 1_024,
    stale: 'first',
    unknown: 'stale',
  },
  { ...USUAL, name: 'apache', lifetimeMs: 300_000, rspauth: true, nextnonce: 'near-end', opaque: 'fixed' },
  { ...USUAL, name: 'apache-nccheck', lifetimeMs: 300_000, count: 'rising', rspauth: true, opaque: 'state' },
  {
    ...USUAL,
    name: 'apache-one-time',
    lifetimeMs: 300_000,
    uses: 1,
    rspauth: true,
    nextnonce: 'each',
    opaque: 'state',
    unknown: 'stale',
  },
  {
    ...USUAL,
    name: 'lighttpd',
    algorithm: 'SHA-256',
    lifetimeMs: 600_000,
    stale: 'first',
    unknown: 'stale',
    nextnonce: 'near-end',
    stateless: true,
  },
  {
    ...USUAL,
    name: 'nginx',
    lifetimeMs: 60_000,
    usedLifetimeMs: 10_000,
    count: 'once',
    countsBelow: 20,
    rspauth: true,
  },
  {
    ...USUAL,
    name: 'squid',
    lifetimeMs: 1_800_000,
    uses: 50,
    count: 'rising',
    killsDisorder: true,
    nextnonce: 'near-end',
  },
  { ...USUAL, name: 'flask', lifetimeMs: 300_000, stale: 'never', opaque: 'fixed', cookie: true },
  { ...USUAL, name: 'no-qop', lifetimeMs: 300_000, counted: false },
  { ...USUAL, name: 'no-qop-bound', lifetimeMs: 300_000, counted: false, boundToAddress: true },
  { ...USUAL, name: 'one-time', lifetimeMs: 300_000, uses: 1 },
  { ...USUAL, name: 'no-qop-one-time', lifetimeMs: 300_000, counted: false, uses: 1, unknown: 'stale' },
];

/** Exchanges of a request once everything about the server is known. */
export function exchangesOf({ uses, nextnonce }: Profile): number {
  return uses === 1 && nextnonce !== 'each' ? 2 : 1;
}
