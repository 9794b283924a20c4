import { Redis } from 'ioredis';
import {
  type RedisServer,
  servesAll,
  startRedis,
  startRedisCluster,
  startRedisSentinel,
} from '../../test/support/redis.ts';
import { until } from '../../test/support/until.ts';

/** One server, a master and its replica with a Sentinel, or three masters with a replica each. */
export type RedisKind = 'alone' | 'sentinel' | 'cluster';

/** Processes that hold the same keys, by their role at this moment. */
export interface Shard {
  readonly master: RedisServer;
  readonly replica: RedisServer | undefined;
}

/** The Redis of the scene. */
export interface RedisSide {
  /** The section `redis` of the configuration. */
  readonly config: Record<string, unknown>;
  /** All shards, when each is whole and serves. */
  shards(): Promise<readonly Shard[]>;
  /** Kills a master; resolves when another server has its place, and it is its replica. */
  failOver(shard: Shard): Promise<void>;
  close(): Promise<void>;
}

const MASTERS = 3;

export function startRedisSide(kind: RedisKind): Promise<RedisSide> {
  switch (kind) {
    case 'alone':
      return startAlone();
    case 'sentinel':
      return startWithSentinel();
    case 'cluster':
      return startCluster();
  }
}

async function startAlone(): Promise<RedisSide> {
  const redis = await startRedis();
  return {
    config: { url: redis.url },
    shards: async () => [{ master: redis, replica: undefined }],
    failOver: () => Promise.reject(new Error('nothing has the place of a Redis alone')),
    close: () => redis.close(),
  };
}

async function startWithSentinel(): Promise<RedisSide> {
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
  const roles = async () =>
    (await port()) === master.port ? { master, replica } : { master: replica, replica: master };
  const shards: RedisSide['shards'] = async () => {
    await until(async () => (await shardsOf([master, replica])).length === 1);
    return [await roles()];
  };
  return {
    config: {
      sentinels: servers.sentinels.map(({ host, port: own }) => `${host}:${own}`),
      name: servers.name,
    },
    shards,
    async failOver({ master: lost, replica: next }) {
      await lost.kill();
      await until(async () => (await roles()).master === next);
      await lost.restart({ settings: [`replicaof 127.0.0.1 ${next?.port}`] });
      await shards();
    },
    close,
  };
}

async function startCluster(): Promise<RedisSide> {
  const { nodes, close } = await startRedisCluster(MASTERS, { replicas: true });
  const shards: RedisSide['shards'] = async () => {
    let found: readonly Shard[] = [];
    await holds('each master has a replica', async () => {
      found = await shardsOf(nodes);
      return found.length === MASTERS;
    });
    await told('each node serves all slots', () => Promise.all(nodes.map(servesAll)));
    return found;
  };
  /** Does that; an error has what each node knows of the others. */
  const told = async (what: string, work: () => Promise<unknown>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      const known = nodes.map((node) => node.command('CLUSTER', 'NODES').catch(String));
      throw new Error([`not so: ${what}`, ...(await Promise.all(known))].join('\n'), { cause: error });
    }
  };
  const holds = (what: string, check: () => Promise<boolean>) => told(what, () => until(check));
  await shards();
  return {
    config: { cluster: nodes.map(({ port }) => `127.0.0.1:${port}`) },
    shards,
    async failOver({ master: lost, replica: next }) {
      const membership = await lost.read('nodes.conf');
      await lost.kill();
      await holds(
        `${next?.port} has the place of ${lost.port}`,
        async () => next !== undefined && (await roleOf(next)).isMaster,
      );
      await lost.restart({ files: { 'nodes.conf': membership } });
      await shards();
    },
    close,
  };
}

/** Each master that has a connected replica, with it. */
async function shardsOf(servers: readonly RedisServer[]): Promise<Shard[]> {
  const roles = await Promise.all(
    servers.map(async (server) => ({ server, ...(await roleOf(server).catch(() => UNKNOWN)) })),
  );
  const masters = roles.filter(({ isMaster }) => isMaster);
  return masters.flatMap(({ server: master }) => {
    const replica = roles.find(({ masterPort }) => masterPort === master.port);
    return replica === undefined ? [] : [{ master, replica: replica.server }];
  });
}

interface Role {
  readonly isMaster: boolean;
  /** Of a replica that is connected to its master. */
  readonly masterPort?: number;
}

const UNKNOWN: Role = { isMaster: false };

async function roleOf(server: RedisServer): Promise<Role> {
  const [role, , masterPort, link] = (await server.command('ROLE')) as unknown[];
  if (role === 'master') return { isMaster: true };
  return link === 'connected' ? { isMaster: false, masterPort: Number(masterPort) } : UNKNOWN;
}
