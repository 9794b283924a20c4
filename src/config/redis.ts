import { isIPv6 } from 'node:net';
import { z } from 'zod';
import type { Issue } from './issues.ts';
import { source } from './secret-source.ts';
import { keysAt, textAt, valueAt } from './tree.ts';
import { duration, fileName, isHost, SECTION, text } from './value-schemas.ts';

const ADDRESS = 'a host and its port, such as redis-1.internal:6379';
const URL_SHAPE =
  'redis://host:port, or rediss://host:port for TLS, with /number after it for another database than 0';
const ONE_KIND = 'give exactly one of url, sentinels and cluster';

/** Host and port of a server, or of a Sentinel or cluster node. */
export interface Address {
  host: string;
  port: number;
}

type Servers =
  | { kind: 'single'; address: Address; database: number }
  | { kind: 'sentinel'; sentinels: Address[]; name: string }
  | { kind: 'cluster'; nodes: Address[] };

/** Schema of the shared Redis. `folder` is the base of relative file names. */
export const redisSchema = (folder: string) =>
  z
    .strictObject(
      {
        url: parsed(URL_SHAPE, parseUrl).exactOptional().describe('One server.'),
        sentinels: addresses().exactOptional().describe('The Sentinels that know the master.'),
        name: text('the name that the Sentinels give the master')
          .exactOptional()
          .describe('The name of the master at the Sentinels. `sentinels` needs it.'),
        cluster: addresses()
          .exactOptional()
          .describe('Some nodes of a Redis Cluster; the others are found through them.'),
        sentinelUsername: text('a user name')
          .exactOptional()
          .describe('The ACL user at the Sentinels. Without it, their user default.'),
        sentinelPassword: source(folder).exactOptional().describe('The password at the Sentinels.'),
        username: text('a user name')
          .exactOptional()
          .describe('The ACL user at the servers. Without it, their user default.'),
        password: source(folder).exactOptional().describe('The password at the servers.'),
        keyFile: fileName(folder)
          .exactOptional()
          .describe(
            'A file of one to three keys, 256 bits in hex each, one a line. The first one signs the values in Redis, each of them verifies. All gateways of one Redis need the same keys. Without it values are not signed.',
          ),
        keyPrefix: text('letters, digits, "-", "_", "." and ":" only, 64 at most', /^[\w.:-]{1,64}$/)
          .default('digest-gateway')
          .describe('Stands before every key and channel.'),
        timeout: duration().default(100).describe('How long a call to Redis may take.'),
        tls: z
          .strictObject(
            {
              caFile: fileName(folder)
                .exactOptional()
                .describe('PEM: the authorities to trust instead of those that Node.js has.'),
            },
            { error: SECTION },
          )
          .exactOptional()
          .describe(
            'TLS to Redis. `rediss://` implies it; Sentinels and cluster nodes need it, `{}` at least.',
          ),
      },
      { error: SECTION },
    )
    .transform(({ url, sentinels, name = '', cluster, tls, ...rest }, context) => {
      const kinds: (Servers | undefined)[] = [
        url && { kind: 'single', address: url.address, database: url.database },
        sentinels && { kind: 'sentinel', sentinels, name },
        cluster && { kind: 'cluster', nodes: cluster },
      ];
      const [servers, second] = kinds.filter((kind) => kind !== undefined);
      if (servers !== undefined && second === undefined) {
        return { ...rest, servers, tls: url?.tls === true ? (tls ?? {}) : tls };
      }
      const found = servers === undefined ? 'names no server' : 'names servers of several kinds';
      context.addIssue({ code: 'custom', message: `${found}: ${ONE_KIND}` });
      return z.NEVER;
    });

/** Checks the keys of `redis` against each other. */
export function* redisFits(tree: unknown): Generator<Issue> {
  const given = keysAt(tree, ['redis']);
  const url = textAt(tree, ['redis', 'url']);
  if (url !== undefined && /^rediss?:\/\/.*@/.test(url)) {
    yield {
      path: ['redis', 'url'],
      message: 'contains a user or a password: write them under username and password instead',
    };
  }
  if (url?.startsWith('redis://') && given.includes('tls')) {
    yield {
      path: ['redis', 'tls'],
      message: 'needs a url with TLS: write rediss:// there, or leave tls out',
    };
  }
  if (given.includes('sentinels') && !given.includes('name')) {
    yield {
      path: ['redis', 'name'],
      message: 'is missing: give the name that the Sentinels have for the master, such as mymaster',
    };
  }
  for (const key of ['name', 'sentinelUsername', 'sentinelPassword']) {
    if (!given.includes(key) || given.includes('sentinels')) continue;
    yield { path: ['redis', key], message: 'is for sentinels only: leave it out, or give sentinels' };
  }
  for (const [user, password] of [
    ['username', 'password'],
    ['sentinelUsername', 'sentinelPassword'],
  ] as const) {
    if (!given.includes(user) || valueAt(tree, ['redis', password]) !== undefined) continue;
    yield { path: ['redis', password], message: 'is missing: a user needs one; give its source' };
  }
}

function addresses() {
  const error = `a list of at least one of ${ADDRESS}`;
  return z.array(parsed(ADDRESS, parseAddress), { error }).nonempty({ error });
}

/** A text with a parsed form. */
function parsed<T>(expected: string, parse: (written: string) => T | undefined) {
  return z.string({ error: expected }).transform((written, context): T => {
    const value = parse(written);
    if (value !== undefined) return value;
    context.addIssue({ code: 'custom', message: `must be ${expected}` });
    return z.NEVER;
  });
}

/** Accepts user and password, because redisFits reports them with a better message. */
function parseUrl(written: string): { address: Address; database: number; tls: boolean } | undefined {
  const match = /^redis(s?):\/\/(?:.*@)?([^/?#@]+)(?:\/(\d{1,4})?)?$/.exec(written);
  const [, tls, authority = '', database = '0'] = match ?? [];
  const address = parseAddress(/:\d+$/.test(authority) ? authority : `${authority}:6379`);
  return address && { address, database: Number(database), tls: tls === 's' };
}

function parseAddress(written: string): Address | undefined {
  const [, bracketed, plain = '', portText = ''] =
    /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(written) ?? [];
  const port = Number(portText);
  const fits = bracketed === undefined ? isHost(plain) : isIPv6(bracketed);
  return fits && port >= 1 && port <= 65_535 ? { host: bracketed ?? plain, port } : undefined;
}
