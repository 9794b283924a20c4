import { isIPv6 } from 'node:net';
import { z } from 'zod';
import { type Accepted, type CrossIssue, crossChecked, neededIssues } from './cross-check.ts';
import { source } from './secret-source.ts';
import {
  authoritiesFile,
  duration,
  fileName,
  isHost,
  listOf,
  parsed,
  section,
  text,
} from './value-schemas.ts';

const ADDRESS = 'a host and its port, such as redis-1.internal:6379';
const URL_SHAPE =
  'redis://host:port, or rediss://host:port for TLS, with /number after it for another database than 0';
const KINDS = ['url', 'sentinels', 'cluster'];

/** Host and port of a server, or of a Sentinel or cluster node. */
interface Address {
  host: string;
  port: number;
}

type Servers =
  | { kind: 'single'; address: Address; database: number }
  | { kind: 'sentinel'; sentinels: Address[]; name: string }
  | { kind: 'cluster'; nodes: Address[] };

const keys = () =>
  section({
    url: parsed(z.string({ error: URL_SHAPE }), parseUrl)
      .exactOptional()
      .describe('One server.'),
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
    sentinelPassword: source().exactOptional().describe('The password at the Sentinels.'),
    username: text('a user name')
      .exactOptional()
      .describe('The ACL user at the servers. Without it, their user default.'),
    password: source().exactOptional().describe('The password at the servers.'),
    keyFile: fileName()
      .exactOptional()
      .describe(
        'A file of one to three keys, 256 bits in hex each, one a line. The first one signs the values in Redis, each of them verifies. All gateways of one Redis need the same keys. Without it values are not signed.',
      ),
    keyPrefix: text('letters, digits, "-", "_", "." and ":" only, 64 at most', /^[\w.:-]{1,64}$/)
      .default('digest-gateway')
      .describe('Stands before every key and channel.'),
    timeout: duration().default(100).describe('How long a call to Redis may take.'),
    tls: section({
      caFile: authoritiesFile(),
    })
      .exactOptional()
      .describe('TLS to Redis. `rediss://` implies it; Sentinels and cluster nodes need it, `{}` at least.'),
  });

type Keys = z.output<ReturnType<typeof keys>>;

/** Schema of the shared Redis. */
export const redisSchema = () =>
  crossChecked(keys(), redisIssues).transform(({ url, sentinels, name = '', cluster = [], tls, ...rest }) => {
    const single: Servers | undefined = url && {
      kind: 'single',
      address: url.address,
      database: url.database,
    };
    const sentinel: Servers | undefined = sentinels && { kind: 'sentinel', sentinels, name };
    const servers: Servers = single ?? sentinel ?? { kind: 'cluster', nodes: cluster };
    return { ...rest, servers, tls: url?.tls === true ? (tls ?? {}) : tls };
  });

const NEEDED = [
  ['sentinels', 'name', 'give the name that the Sentinels have for the master, such as mymaster'],
  ['username', 'password', 'a user needs one; give its source'],
  ['sentinelUsername', 'sentinelPassword', 'a user needs one; give its source'],
] as const;

function* redisIssues(redis: Accepted<Keys>): Generator<CrossIssue> {
  const kinds = KINDS.filter((kind) => kind in redis);
  if (kinds.length !== 1) {
    const found = kinds.length === 0 ? 'names no server' : 'names servers of several kinds';
    yield { path: [], message: `${found}: give exactly one of url, sentinels and cluster` };
  }
  if (redis.url?.tls === false && 'tls' in redis) {
    yield { path: ['tls'], message: 'needs a url with TLS: write rediss:// there, or leave tls out' };
  }
  yield* neededIssues(redis, NEEDED);
  for (const key of ['name', 'sentinelUsername', 'sentinelPassword'] as const) {
    if (!(key in redis) || 'sentinels' in redis) continue;
    yield { path: [key], message: 'is for sentinels only: leave it out, or give sentinels' };
  }
}

function addresses() {
  const error = `a list of at least one of ${ADDRESS}`;
  return listOf(parsed(z.string({ error: ADDRESS }), parseAddress), error);
}

function parseUrl(written: string): { address: Address; database: number; tls: boolean } {
  if (/^rediss?:\/\/.*@/.test(written)) {
    throw new RangeError('contains a user or a password: write them under username and password instead');
  }
  const match = /^redis(s?):\/\/([^/?#]+)(?:\/(\d{1,4})?)?$/.exec(written);
  const [, tls, authority = '', database = '0'] = match ?? [];
  const address = readAddress(/:\d+$/.test(authority) ? authority : `${authority}:6379`);
  if (address === undefined) throw new RangeError(`must be ${URL_SHAPE}`);
  return { address, database: Number(database), tls: tls === 's' };
}

function parseAddress(written: string): Address {
  const address = readAddress(written);
  if (address === undefined) throw new RangeError(`must be ${ADDRESS}`);
  return address;
}

function readAddress(written: string): Address | undefined {
  const [, bracketed, plain = '', portText = ''] =
    /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(written) ?? [];
  const port = Number(portText);
  const fits = bracketed === undefined ? isHost(plain) : isIPv6(bracketed);
  return fits && port >= 1 && port <= 65_535 ? { host: bracketed ?? plain, port } : undefined;
}
