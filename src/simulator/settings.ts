import { BlockList, isIPv6 } from 'node:net';
import { z } from 'zod';

/** The algorithms that a challenge can offer (RFC 7616 §3.3). */
export const algorithmNames = [
  'MD5',
  'MD5-sess',
  'SHA-256',
  'SHA-256-sess',
  'SHA-512-256',
  'SHA-512-256-sess',
] as const;

const milliseconds = z.number().int().min(0);
// What reaches a header field must hold no control character.
const printable = z.string().regex(/^\P{Cc}+$/u, 'must not be empty or hold control characters');

const target = {
  /** How many requests it hits; unlimited when left out. */
  times: z.number().int().positive().optional(),
  /** `authenticated`: only requests whose Digest was accepted; `unauthenticated`: only the others. */
  when: z.enum(['any', 'authenticated', 'unauthenticated']).default('any'),
};

const fault = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('delay'), ms: milliseconds, ...target }),
  z.strictObject({ kind: z.literal('reset-before-head'), ...target }),
  z.strictObject({ kind: z.literal('hang'), ...target }),
  z.strictObject({ kind: z.literal('garbage'), ...target }),
  z.strictObject({ kind: z.literal('endless-401'), stale: z.boolean().default(false), ...target }),
  z.strictObject({ kind: z.literal('no-digest'), offer: z.enum(['basic', 'nothing']), ...target }),
  z.strictObject({
    kind: z.literal('status'),
    status: z.number().int().min(500).max(599).default(503),
    /** The number in the XML body; 600 to 602 is what such services say during maintenance. */
    errorCode: z.number().int().default(600),
    ...target,
  }),
  z.strictObject({
    kind: z.literal('throttle'),
    /** 400 carries errorCode 500 and a call-back time in the body; 429 carries Retry-After. */
    status: z.union([z.literal(400), z.literal(429)]).default(400),
    retryAfterSeconds: z.number().int().positive().default(60),
    ...target,
  }),
  /** A body that is shorter goes out whole. */
  z.strictObject({ kind: z.literal('reset-in-body'), afterBytes: z.number().int().positive(), ...target }),
  z.strictObject({
    kind: z.literal('slow-body'),
    bytes: z.number().int().positive(),
    everyMs: milliseconds,
    ...target,
  }),
  /** Content-Length says so many bytes more (or fewer, when negative) than the body has. */
  z.strictObject({ kind: z.literal('content-length'), offBy: z.number().int(), ...target }),
]);

/** One misbehaviour of the simulator. */
export type Fault = z.output<typeof fault>;

const account = z.strictObject({
  username: printable,
  password: z.string(),
  /** Accepted as well, as while a password is being changed. */
  otherPasswords: z.array(z.string()).optional(),
  /** The values of `site_name` that this account may use. */
  sites: z.array(z.string()),
});

export type Account = z.output<typeof account>;

const behaviour = z.strictObject({
  tls: z.enum(['good', 'expired', 'foreign', 'wrong-host']).default('good'),
  /** The youngest version of TLS that it speaks. */
  tlsMaxVersion: z.enum(['TLSv1.2', 'TLSv1.3']).default('TLSv1.3'),
  accounts: z.array(account).default([{ username: 'demo-user', password: 'demo-api-key', sites: ['demo'] }]),
  realm: printable.default('ExampleApiService'),
  qop: z.enum(['none', 'auth', 'auth-int', 'both']).default('none'),
  /** One challenge each, in this order. `algorithm` is left out for MD5 alone without qop. */
  algorithms: z.array(z.enum(algorithmNames)).nonempty().default(['MD5']),
  /** Several challenges: a header line each, or all in one line. */
  challenges: z.enum(['lines', 'joined']).default('lines'),
  opaque: z.boolean().default(false),
  /** An answer with another `opaque` than the offered one (or with one that was not offered): 401. */
  requireMatchingOpaque: z.boolean().default(false),
  userhash: z.boolean().default(false),
  charset: z.boolean().default(false),
  /** What an answer gets whose uri is not the request target, byte for byte; some servers say 400. */
  uriMismatchStatus: z.union([z.literal(400), z.literal(401)]).default(401),
  nonceLifetimeMs: milliseconds.default(300_000),
  oneTimeNonces: z.boolean().default(false),
  /** After so many accepted uses a nonce counts as expired. */
  maxNonceUses: z.number().int().positive().nullable().default(null),
  /** A nonce is worth nothing from another client address. */
  bindNonceToAddress: z.boolean().default(false),
  /**
   * stale="true" for an expired or used-up nonce once its digest was found right; `always`: for expired
   * and unknown nonces before the digest is looked at, too; or never.
   */
  staleFlag: z.enum(['after-digest', 'always', 'never']).default('after-digest'),
  nextnonce: z.enum(['never', 'always']).default('never'),
  rspauth: z.enum(['none', 'right', 'wrong']).default('none'),
  /** `window`: each value once, at most 50 ahead of the accepted ones; `rising`: strictly. */
  nc: z.enum(['unchecked', 'window', 'rising']).default('unchecked'),
  /** A refused nc makes the nonce unknown from then on. */
  refusedNcKillsNonce: z.boolean().default(false),
  /** After so many wrong digests in a row an address is refused, or its connections dropped, for a while. */
  lockout: z
    .strictObject({
      failures: z.number().int().positive(),
      durationMs: milliseconds,
      answer: z.enum(['403', 'drop']).default('403'),
    })
    .nullable()
    .default(null),
  /** The 401 sets a cookie without which its nonce is refused by a plain 401. */
  requireCookie: z.boolean().default(false),
  /** Addresses or CIDR ranges; null: every address is registered. */
  allowedAddresses: z
    .array(z.string().refine(isAddressRange, 'must be an IP address or a CIDR range'))
    .nullable()
    .default(null),
  addressRefusalStatus: z.number().int().min(400).max(599).default(403),
  ids: z
    .strictObject({
      quoted: z.boolean().default(true),
      separator: z.string().length(1).default(','),
      max: z.number().int().positive().default(25),
    })
    .default({ quoted: true, separator: ',', max: 25 }),
  /** The parameter and value that select JSON; null: always XML. */
  json: z
    .strictObject({ parameter: z.string(), value: z.string() })
    .nullable()
    .default({ parameter: '_type', value: 'json' }),
  /** Serves /echo, /bytes/N, /status/NNN, /headers and /early-hints as well. */
  testPaths: z.boolean().default(false),
  keepAliveTimeoutMs: milliseconds.default(60_000),
  faults: z.array(fault).default([]),
});

const port = z.number().int().min(0).max(65_535).default(0);

const deployment = z.strictObject({
  port,
  kind: z.enum(['submissions', 'abstracts']),
  /** The path segment after /api/. */
  family: z.string().regex(/^[\w.~-]+$/, 'must be one plain path segment'),
  /** http instead of https. */
  plaintext: z.boolean().default(false),
  ...behaviour.shape,
});

const simulator = z.strictObject({
  host: z.string().default('127.0.0.1'),
  sidePort: port,
  /** Names that the servers' certificates have besides localhost. */
  serverNames: z.array(z.string().min(1)).default([]),
  /** Where the authority's certificate is written before a port opens, for clients in other processes. */
  caFile: z.string().min(1).exactOptional(),
  deployments: z.record(z.string().regex(/^[\w.~-]+$/), deployment),
});

/** The schema of `simulate --config FILE`; strict, every behaviour has a default, durations are in ms. */
export const simulatorSettings = simulator;

/** What a deployment does; all of it can change while it runs. */
export type Behaviour = z.output<typeof behaviour>;
export type BehaviourChange = Partial<z.input<typeof behaviour>>;
export type DeploymentSettings = z.input<typeof deployment>;
export type CheckedDeployment = z.output<typeof deployment>;

/** Settings as a caller writes them: what is left out gets its default. */
export interface SimulatorSettings<Name extends string = string> {
  host?: string;
  sidePort?: number;
  serverNames?: string[];
  caFile?: string;
  deployments: Record<Name, DeploymentSettings>;
}

/** The behaviour of settings, without what is fixed for a run. */
export function behaviourOf(settings: CheckedDeployment): Behaviour {
  const { port: _port, kind: _kind, family: _family, plaintext: _plaintext, ...rest } = settings;
  return rest;
}

/**
 * The behaviour with some of it changed; a key set to undefined goes back to its default.
 * @throws ZodError for a key or value that does not exist.
 */
export function changedBehaviour(current: Behaviour, change: unknown): Behaviour {
  return behaviour.parse({ ...current, ...z.record(z.string(), z.unknown()).parse(change) });
}

/** The ports of `simulate` and `demo`. */
export const demoPorts = { submissions: 9443, abstracts: 9444 };

/** Both deployments of the specification, on free ports unless said. */
export function defaultSettings(ports = { submissions: 0, abstracts: 0 }) {
  return {
    deployments: {
      submissions: { port: ports.submissions, kind: 'submissions', family: 'manuscripts' },
      abstracts: { port: ports.abstracts, kind: 'abstracts', family: 'abstracts' },
    },
  } as const satisfies SimulatorSettings;
}

/** A list of addresses and CIDR ranges. @throws when one of them is neither. */
export function addressList(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = '', prefix] = range.split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, /^\d+$/.test(prefix) ? Number(prefix) : Number.NaN, family);
  }
  return list;
}

function isAddressRange(range: string): boolean {
  try {
    addressList([range]);
    return true;
  } catch {
    return false;
  }
}
