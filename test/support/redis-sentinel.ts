import type { RedisServers } from '../../src/redis/connection.ts';
import { type RedisServer, type RedisSetup, startRedis } from './redis.ts';
import { until } from './until.ts';

export interface RedisSentinel {
  readonly servers: Extract<RedisServers, { kind: 'sentinel' }>;
  readonly master: RedisServer;
  readonly replica: RedisServer;
  /** The process that watches both. */
  readonly sentinel: RedisServer;
  /** Allows the Sentinel to make the replica the master; resolves when it has. */
  promoted(): Promise<void>;
  close(): Promise<void>;
}

export interface RedisSentinelSetup {
  /** With TLS only: between all of them, too. */
  readonly tls?: Pick<RedisSetup, 'certificate' | 'ca'>;
  /** Lines of sentinel.conf, beside those that watch the master. */
  readonly settings?: readonly string[];
  /** True: nothing takes the place of a failed master until `promoted` is called. */
  readonly waits?: boolean;
}

/** `replica-priority` of a replica that no Sentinel makes the master. */
const NEVER = 0;

/** A master, its replica, and a Sentinel that is quick to put the one in the place of the other. */
export async function startRedisSentinel({
  tls = {},
  settings = [],
  waits = false,
}: RedisSentinelSetup = {}): Promise<RedisSentinel> {
  const master = await startRedis(tls);
  const replica = await startRedis({
    ...tls,
    settings: [`replicaof 127.0.0.1 ${master.port}`, `replica-priority ${waits ? NEVER : 1}`],
  });
  const replication = async (): Promise<string> =>
    String(await replica.command('INFO', 'replication').catch(() => ''));
  await until(async () => (await replication()).includes('link_status:up'));
  const sentinel = await startRedis({
    ...tls,
    sentinel: true,
    settings: [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds mymaster 200',
      'sentinel failover-timeout mymaster 1000',
      ...settings,
    ],
  });
  // Before it has seen the replica it could not promote it.
  await until(async () => (await sentinel.read('redis.conf')).includes('known-replica'));
  return {
    servers: {
      kind: 'sentinel',
      sentinels: [{ host: '127.0.0.1', port: sentinel.port }],
      name: 'mymaster',
    },
    master,
    replica,
    sentinel,
    async promoted() {
      await replica.command('CONFIG', 'SET', 'replica-priority', 1);
      await until(async () => (await replication()).includes('role:master'));
    },
    async close() {
      await Promise.all([master, replica, sentinel].map((server) => server.close()));
    },
  };
}
