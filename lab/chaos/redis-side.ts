import { Redis } from 'ioredis';
import { type RedisServer, startRedis, startRedisSentinel } from '../../test/support/redis.ts';
import { until } from '../../test/support/until.ts';

/** The Redis of the scene, alone or with a Sentinel. */
export interface RedisSide {
  /** The section `redis` of the configuration. */
  readonly config: Record<string, unknown>;
  /** Processes by their role at this moment. */
  roles(): Promise<{ readonly master: RedisServer; readonly replica: RedisServer | undefined }>;
  /** Resolves when a killed server that was started again serves as what it should. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

export async function startAlone(): Promise<RedisSide> {
  const redis = await startRedis();
  return {
    config: { url: redis.url },
    roles: async () => ({ master: redis, replica: undefined }),
    settle: async () => undefined,
    close: () => redis.close(),
  };
}

export async function startWithSentinel(): Promise<RedisSide> {
  const { servers, master, replica, sentinel, close } = await startRedisSentinel();
  const port = async (): Promise<number> => {
    const client = new Redis({ host: '127.0.0.1', port: sentinel.port, retryStrategy: null });
    client.on('error', () => undefined);
    try {
      const address = await client.call('SENTINEL', 'get-master-addr-by-name', servers.name);
      return Number((address as string[])[1]);
    } finally {
      client.disconnect();
    }
  };
  const roles: RedisSide['roles'] = async () =>
    (await port()) === master.port ? { master, replica } : { master: replica, replica: master };
  const isReplicated = async (): Promise<boolean> => {
    const now = await roles();
    const said = await now.replica?.command('INFO', 'replication').catch(() => '');
    return String(said).includes('link_status:up');
  };
  return {
    config: {
      sentinels: servers.sentinels.map(({ host, port: own }) => `${host}:${own}`),
      name: servers.name,
    },
    roles,
    settle: () => until(isReplicated).then(() => undefined),
    close,
  };
}
