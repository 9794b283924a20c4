import { type RedisServer, startRedis } from './redis.ts';
import { freePort } from './server-process.ts';
import { until } from './until.ts';

const SLOTS = 16_384;

export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  close(): Promise<void>;
}

/** A Cluster of masters that share the slots evenly and serve theirs even if others are lost. */
export async function startRedisCluster(size: number): Promise<RedisCluster> {
  const started = await Promise.all(
    Array.from({ length: size }, async () => {
      const bus = await freePort();
      const settings = [
        'cluster-enabled yes',
        'cluster-config-file nodes.conf',
        // By default it is the port and 10000, and that may be too high, or somebody else's.
        `cluster-port ${bus}`,
        'cluster-node-timeout 1000',
        'cluster-require-full-coverage no',
      ];
      return { node: await startRedis({ settings }), bus };
    }),
  );
  const [first] = started;
  for (const [at, { node, bus }] of started.entries()) {
    const end = Math.floor((SLOTS * (at + 1)) / size) - 1;
    await node.command('CLUSTER', 'SET-CONFIG-EPOCH', at + 1);
    await node.command('CLUSTER', 'ADDSLOTSRANGE', Math.floor((SLOTS * at) / size), end);
    await first?.node.command('CLUSTER', 'MEET', '127.0.0.1', node.port, bus);
  }
  const nodes = started.map(({ node }) => node);
  for (const node of nodes) await servesAll(node);
  return {
    nodes,
    async close() {
      await Promise.all(nodes.map((node) => node.close()));
    },
  };
}

/** Resolves when the node serves its slots and knows of one for each other slot that does. */
export async function servesAll(node: RedisServer): Promise<void> {
  await until(async () => {
    const info = String(await node.command('CLUSTER', 'INFO'));
    return info.includes('cluster_state:ok') && info.includes(`cluster_slots_ok:${SLOTS}`);
  });
}
