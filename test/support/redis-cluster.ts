import type { RedisServers } from '../../src/redis/connection.ts';
import { type RedisServer, type RedisSetup, startRedis } from './redis.ts';
import { freePort } from './server-process.ts';
import { until } from './until.ts';

const SLOTS = 16_384;

export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  readonly servers: RedisServers;
  close(): Promise<void>;
}

/** A Cluster of masters that share the slots evenly and serve theirs even if others are lost; each with this setup. */
export async function startRedisCluster(
  size: number,
  setup: Pick<RedisSetup, 'certificate' | 'ca'> = {},
): Promise<RedisCluster> {
  const started = await Promise.all(
    Array.from({ length: size }, async () => {
      const bus = await freePort();
      const settings = (port: number): string[] => [
        'cluster-enabled yes',
        'cluster-config-file nodes.conf',
        // By default it is the port and 10000, and that may be too high, or somebody else's.
        `cluster-port ${bus}`,
        // With TLS the bus stays without, for it would want certificates of clients; without this it knows no port.
        `cluster-announce-port ${port}`,
        'cluster-node-timeout 1000',
        'cluster-require-full-coverage no',
      ];
      return { node: await startRedis({ ...setup, settings }), bus };
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
    servers: { kind: 'cluster', nodes: nodes.map(({ port }) => ({ host: '127.0.0.1', port })) },
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

/** Kills a node; resolves to what starts it again as the member that it was, which can be called again. */
export async function loseNode({ nodes }: RedisCluster, node: RedisServer): Promise<() => Promise<void>> {
  const membership = await node.read('nodes.conf');
  await node.kill();
  let back: Promise<void> | undefined;
  return () => {
    back ??= (async () => {
      await node.restart({ files: { 'nodes.conf': membership } });
      for (const each of nodes) await servesAll(each);
    })();
    return back;
  };
}

/** Hands a slot and the keys in it over to another node, as it is done while everybody works. */
export async function moveSlot(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
  const [source, target] = [await from.command('CLUSTER', 'MYID'), await to.command('CLUSTER', 'MYID')];
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(source));
  await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(target));
  await until(async () => {
    const keys = await from.command('CLUSTER', 'GETKEYSINSLOT', slot, 100);
    if (!Array.isArray(keys) || keys.length === 0) return true;
    await from.command('MIGRATE', '127.0.0.1', to.port, '', 0, 1_000, 'KEYS', ...keys.map(String));
    return false;
  });
  for (const node of [to, from]) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', String(target));
}
