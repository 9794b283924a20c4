import { page, wrap } from '../../docs/generate/markdown.ts';

/** One server with one setting, in front of it the gateway. */
export interface ServerRow {
  readonly server: string;
  readonly setting: string;
  /** Requests at the upstream for the first client request. */
  readonly first: number;
  /** The same for 20 client requests, one after the other. */
  readonly inTurn: string;
  /** Eight client requests at once: how many were served; undefined: it depends on timing. */
  readonly atOnce: number | undefined;
  /** How many odd targets were served, and what the others got. */
  readonly targets: string;
  /** Requests at the upstream for the first client request after its restart. */
  readonly restart: string;
  /** Attempts with a wrong password for three client requests, and what these got. */
  readonly wrong: string;
  /** The reuse policy that the gateway has learned from the requests in turn. */
  readonly policy: string;
}

/** A server with nonces of a few seconds. */
export interface ExpiredRow {
  readonly server: string;
  /** Requests at the upstream for one client request after its nonce has expired. */
  readonly requests: number;
}

/** Settings of the simulator under which some algorithms behaved alike. */
export interface SimulatedRow {
  readonly profile: string;
  readonly qop: string;
  readonly algorithms: string;
  readonly first: number;
  /** For ten client requests. */
  readonly inTurn: number;
  /** Of four. */
  readonly atOnce: number;
  /** Undefined: it depends on timing. */
  readonly policy: string | undefined;
  /** The code of an error, or `served`. */
  readonly result: string;
}

/** A forward proxy with authentication, behind the gateway. */
export interface ProxyRow {
  readonly proxy: string;
  /** Statuses of the CONNECT requests for the first client request. */
  readonly first: string;
  /** How many tunnels 20 more client requests take, one after the other. */
  readonly inTurn: number;
  /** Statuses of the CONNECT requests with a wrong password, for three client requests. */
  readonly wrong: string;
}

export interface Observed {
  readonly servers: readonly ServerRow[];
  readonly expired: readonly ExpiredRow[];
  readonly proxies: readonly ProxyRow[];
  readonly simulated: readonly SimulatedRow[];
}

const INTRODUCTION = [
  '<!-- Written by test/full/interoperability.test.ts with "npm run docs:interop". Do not edit. -->',
  '# Interoperability',
  wrap(
    'What the gateway does in front of real servers with Digest, as its tests see it. Each run of the tests starts the servers, makes the requests, and compares what it saw with this page; the number of requests is that of the access log of the server. Only what does not depend on timing is here.',
  ),
];

const SERVERS = wrap(
  'Processes of their own, from the packages of Debian, over TLS (sabre/dav and CivetWeb without), with a gateway that knows nothing of them. "First" are the requests at the server for the first client request: one is refused with the challenge, one is accepted. "In turn" are those for 20 client requests one after the other; 20 means that no request was repeated. "At once" says how many of eight simultaneous client requests were served, with a dash if that depends on timing. "Odd targets" says how many of six with quotes, commas, percent-encoding or an empty query were served, and what the others got: some servers read such a target in one way for its resource and in another for its digest, so no client can use it with Digest. "Restart" are the requests at the server for the first client request after its process was replaced: 1 if the nonce is still good, else one that is refused and one that answers it; up to three requests of the gateway find out that the credential is good when the refusal came late. "Wrong password" has a range where the nonce changes with the second: a refusal that names the refused nonce proves nothing, and the next nonce is awaited. "Policy" is the [reuse policy](../develop/nonces.md) that the gateway had learned after the requests in turn.',
);

const COUNTS_BY_OPAQUE = wrap(
  'libmicrohttpd binds a nonce to method and path, so a request with another one is repeated with the challenge of its refusal. WEBrick with `CheckNc` (off by default) counts nc for each `opaque`, where RFC 7616 counts it for each nonce, and its nonce changes once a second only. When it calls an answer stale and names the same nonce with another `opaque`, the gateway counts for each `opaque`, too. Until then the first request with a new nonce costs another exchange, and of several simultaneous requests some can get 502 `upstream-protocol`. Which requests are repeated depends on timing, so it has no row.',
);

const EXPIRED = wrap(
  'Requests at the server for one client request whose nonce has expired meanwhile; 2 means that the refused one was repeated once. Only servers whose lifetime can be set.',
);

const PROXIES = wrap(
  'Squid as the forward proxy of a deployment (`egress.proxy`), with its own log of CONNECT requests. Its Digest is MD5 with `qop=auth`, so `digest.algorithms` has to contain MD5, as the default does.',
);

const SIMULATED = wrap(
  'The [simulator](../../src/simulator) with the behaviour of servers, each with every algorithm and `qop`. Columns are as above, with ten client requests in turn and four at once. Algorithms that behave alike share a row; a dash as policy says that requests were repeated, and that how soon the policy becomes stricter depends on timing. A challenge of a -sess algorithm without `qop` cannot be answered: see RFC 7616 §3.4.2.',
);

/** The text of docs/security/interoperability.md. */
export function interoperabilityPage({ servers, expired, proxies, simulated }: Observed): string {
  return page([
    ...INTRODUCTION,
    '## Servers',
    SERVERS,
    table(
      [
        'Server',
        'Setting',
        'First',
        'In turn',
        'At once',
        'Odd targets',
        'Restart',
        'Wrong password',
        'Policy',
      ],
      servers.map(serverCells),
    ),
    COUNTS_BY_OPAQUE,
    '## Expired nonces',
    EXPIRED,
    table(
      ['Server', 'Requests'],
      expired.map(({ server, requests }) => [server, requests]),
    ),
    '## Forward proxies',
    PROXIES,
    table(
      ['Proxy', 'First', 'Tunnels for 20 in turn', 'Wrong password'],
      proxies.map(({ proxy, first, inTurn, wrong }) => [proxy, first, inTurn, wrong]),
    ),
    '## Behaviours, algorithms and `qop`',
    SIMULATED,
    table(
      ['Behaviour', '`qop`', 'Algorithms', 'First', 'In turn', 'At once', 'Policy', 'Result'],
      simulated.map(simulatedCells),
    ),
  ]);
}

type Cell = string | number;

function serverCells(row: ServerRow): Cell[] {
  const { server, setting, first, inTurn, atOnce, targets, restart, wrong, policy } = row;
  const crowd = atOnce === undefined ? '–' : `${atOnce} of 8`;
  return [server, setting, first, inTurn, crowd, targets, restart, wrong, policy];
}

function simulatedCells(row: SimulatedRow): Cell[] {
  const { profile, qop, algorithms, first, inTurn, atOnce, policy, result } = row;
  return [profile, qop, algorithms, first, inTurn, `${atOnce} of 4`, policy ?? '–', result];
}

function table(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
