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

// The `error` of a schema completes the sentence "must be …".
const MAPPING = 'a mapping of keys to values';
const PATH_SEGMENT = 'one plain path segment';
const PRINTABLE = 'a text of one or more characters, none of them a control character';

const milliseconds = z.number().int().min(0);
// A text for a header field, which must not contain control characters.
const printable = z.string({ error: PRINTABLE }).regex(/^\P{Cc}+$/u, PRINTABLE);

const target = {
  /** Number of requests that it applies to; unlimited if absent. */
  times: z.number().int().positive().optional(),
  /** `authenticated`: only requests with an accepted Digest; `unauthenticated`: only the others. */
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
    /** The number in the XML body; such services use 600 to 602 during maintenance. */
    errorCode: z.number().int().default(600),
    ...target,
  }),
  z.strictObject({
    kind: z.literal('throttle'),
    /** 400 has errorCode 500 and a call-back time in the body; 429 has Retry-After. */
    status: z.union([z.literal(400), z.literal(429)]).default(400),
    retryAfterSeconds: z.number().int().positive().default(60),
    ...target,
  }),
  /** A shorter body is sent completely. */
  z.strictObject({ kind: z.literal('reset-in-body'), afterBytes: z.number().int().positive(), ...target }),
  z.strictObject({
    kind: z.literal('slow-body'),
    bytes: z.number().int().positive(),
    everyMs: milliseconds,
    ...target,
  }),
  /** Difference between Content-Length and the body's length in bytes; may be negative. */
  z.strictObject({ kind: z.literal('content-length'), offBy: z.number().int(), ...target }),
]);

/** One fault of the simulator. */
export type Fault = z.output<typeof fault>;

export const faultKinds: readonly Fault['kind'][] = fault.options.map(({ shape }) => shape.kind.value);

const account = z.strictObject({
  username: printable,
  password: z.string(),
  /** Also accepted, as during a change of password. */
  otherPasswords: z.array(z.string()).optional(),
  /** The values of `site_name` that this account may use. */
  sites: z.array(z.string()),
});

export type Account = z.output<typeof account>;

const behaviour = z.strictObject({
  tls: z.enum(['good', 'expired', 'foreign', 'wrong-host']).default('good'),
  /** The highest supported version of TLS. */
  tlsMaxVersion: z.enum(['TLSv1.2', 'TLSv1.3']).default('TLSv1.3'),
  accounts: z.array(account).default([{ username: 'demo-user', password: 'demo-api-key', sites: ['demo'] }]),
  realm: printable.default('ExampleApiService'),
  qop: z.enum(['none', 'auth', 'auth-int', 'both']).default('none'),
  /** One challenge for each, in this order. `algorithm` is omitted for MD5 alone without qop. */
  algorithms: z.array(z.enum(algorithmNames)).nonempty().default(['MD5']),
  /** Several challenges: one header line for each, or all in one line. */
  challenges: z.enum(['lines', 'joined']).default('lines'),
  opaque: z.boolean().default(false),
  /** Responds 401 if `opaque` differs from the offered one, or none was offered. */
  requireMatchingOpaque: z.boolean().default(false),
  userhash: z.boolean().default(false),
  charset: z.boolean().default(false),
  /** Status if the Digest uri differs from the request target, byte for byte; some servers send 400. */
  uriMismatchStatus: z.union([z.literal(400), z.literal(401)]).default(401),
  /** A target that contains this text is refused as by a server that reads the uri of the answer differently. */
  refusedTargets: z.string().min(1).nullable().default(null),
  nonceLifetimeMs: milliseconds.default(300_000),
  /** All who ask within this time of the first get the same nonce. */
  sharedNonceMs: milliseconds.nullable().default(null),
  oneTimeNonces: z.boolean().default(false),
  /** Number of accepted uses after which a nonce counts as expired. */
  maxNonceUses: z.number().int().positive().nullable().default(null),
  /** A nonce is valid for one client address only. */
  bindNonceToAddress: z.boolean().default(false),
  /**
   * `after-digest`: stale="true" for an expired or used-up nonce with a correct digest; `always`: also for
   * expired and unknown nonces before the digest is checked; `never`: no stale="true".
   */
  staleFlag: z.enum(['after-digest', 'always', 'never']).default('after-digest'),
  nextnonce: z.enum(['never', 'always']).default('never'),
  rspauth: z.enum(['none', 'right', 'wrong']).default('none'),
  /** `window`: each value once, at most 50 ahead of the accepted ones; `rising`: strictly increasing. */
  nc: z.enum(['unchecked', 'window', 'rising']).default('unchecked'),
  /** A refused nc makes the nonce unknown. */
  refusedNcKillsNonce: z.boolean().default(false),
  /**
   * Number of consecutive wrong digests after which an address is refused, or its connections dropped, for
   * a time.
   */
  lockout: z
    .strictObject({
      failures: z.number().int().positive(),
      durationMs: milliseconds,
      answer: z.enum(['403', 'drop']).default('403'),
    })
    .nullable()
    .default(null),
  /** The 401 sets a cookie; a nonce without its cookie is refused by a 401 without stale. */
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
  /** Also serves /echo, /bytes/N, /status/NNN, /headers and /early-hints. */
  testPaths: z.boolean().default(false),
  keepAliveTimeoutMs: milliseconds.default(60_000),
  faults: z.array(fault).default([]),
});

const port = z.number().int().min(0).max(65_535).default(0);

const deployment = z.strictObject(
  {
    port,
    kind: z.enum(['submissions', 'abstracts'], { error: 'submissions or abstracts' }),
    /** The path segment after /api/. */
    family: z.string({ error: PATH_SEGMENT }).regex(/^[\w.~-]+$/, PATH_SEGMENT),
    /** Plain HTTP instead of HTTPS. */
    plaintext: z.boolean().default(false),
    ...behaviour.shape,
  },
  { error: MAPPING },
);

/** The schema of `simulate --config FILE`; strict; every behaviour has a default; durations are in ms. */
export const simulatorSettings = z.strictObject(
  {
    host: z.string().default('127.0.0.1'),
    sidePort: port,
    /** DNS names in the servers' certificates, in addition to localhost. */
    serverNames: z.array(z.string().min(1)).default([]),
    /** File for the authority's certificate, written before a port opens, for clients in other processes. */
    caFile: z.string().min(1).exactOptional(),
    deployments: z.record(
      z.string().regex(/^[\w.~-]+$/, 'is not a name that can be used here: letters, digits and ._~- only'),
      deployment,
      { error: MAPPING },
    ),
  },
  { error: MAPPING },
);

/** The behaviour of a deployment; all of it can change at run time. */
export type Behaviour = z.output<typeof behaviour>;
export type BehaviourChange = Partial<z.input<typeof behaviour>>;
export type DeploymentSettings = z.input<typeof deployment>;
export type CheckedDeployment = z.output<typeof deployment>;

/** Settings as a caller writes them; absent keys get their defaults. */
export type SimulatorSettings<Name extends string = string> = z.input<typeof simulatorSettings> & {
  deployments: Record<Name, DeploymentSettings>;
};

/** Returns the behaviour in settings, without the parts that are fixed at the start. */
export function behaviourOf(settings: CheckedDeployment): Behaviour {
  const { port: _port, kind: _kind, family: _family, plaintext: _plaintext, ...rest } = settings;
  return rest;
}

/**
 * Applies a change to a behaviour; a key that is set to undefined gets its default.
 * @throws ZodError for an unknown key or invalid value.
 */
export function changedBehaviour(current: Behaviour, change: unknown): Behaviour {
  return behaviour.parse({ ...current, ...z.record(z.string(), z.unknown()).parse(change) });
}

/** The ports of `simulate` and `demo`. */
export const demoPorts = { submissions: 9443, abstracts: 9444 };

/** Both deployments of the specification, on any free ports by default. */
export function defaultSettings(ports = { submissions: 0, abstracts: 0 }) {
  return {
    deployments: {
      submissions: { port: ports.submissions, kind: 'submissions', family: 'manuscripts' },
      abstracts: { port: ports.abstracts, kind: 'abstracts', family: 'abstracts' },
    },
  } as const satisfies SimulatorSettings;
}

/** Parses addresses and CIDR ranges. @throws if one of them is neither. */
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
