import { expect, test } from '@jest/globals';
import { messageOf } from '../../../src/base/error-code.ts';
import { RedisClient } from '../../../src/redis/client.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { startRedis, startRedisCluster } from '../../support/redis.ts';
import { openWatched, redisOptions } from '../../support/redis-store.ts';
import { freePort } from '../../support/server-process.ts';
import { until } from '../../support/until.ts';

const LAST_SLOT = 16_383;

test('a node without slots says so, at once', async () => {
  const bus = await freePort();
  const settings = ['cluster-enabled yes', `cluster-port ${bus}`];
  const { port } = await closedAtEnd(startRedis({ settings }));
  const watched = openWatched({ kind: 'cluster', nodes: [{ host: '127.0.0.1', port }] });
  closing.push(() => watched.store.close());
  await watched.down();
  const reason = 'the node knows no slots of a Cluster';
  expect(watched.states).toEqual([expect.stringContaining(reason)]);
  await expect(watched.store.load('k')).rejects.toThrow(reason);
});

test('a Cluster that lost its slots says CLUSTERDOWN, and serves when it has them again', async () => {
  const cluster = await closedAtEnd(startRedisCluster(1));
  const [node] = cluster.nodes;
  const client = new RedisClient(redisOptions(cluster.servers), {});
  closing.push(() => client.close());
  const watched = openWatched(cluster.servers);
  closing.push(() => watched.store.close());
  await watched.up();
  await until(() => client.commands.status === 'ready');
  await client.call((commands) => commands.set('k', 'v'));

  await node?.command('CLUSTER', 'DELSLOTSRANGE', 0, LAST_SLOT);
  await watched.down();
  expect(watched.states.at(-1)).toMatch(/^CLUSTERDOWN /);
  expect(await client.call((commands) => commands.get('k')).catch(messageOf)).toMatch(/^CLUSTERDOWN /);

  const late = openWatched(cluster.servers);
  closing.push(() => late.store.close());
  await late.down();

  await node?.command('CLUSTER', 'ADDSLOTSRANGE', 0, LAST_SLOT);
  await watched.up();
  await late.up();
  await until(async () => (await client.call((commands) => commands.get('k')).catch(messageOf)) === 'v');
});

test('a Cluster that was down from the beginning says CLUSTERDOWN', async () => {
  const cluster = await closedAtEnd(startRedisCluster(1));
  const [node] = cluster.nodes;
  await node?.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'yes');
  await node?.command('CLUSTER', 'DELSLOTS', LAST_SLOT);
  await until(async () => String(await node?.command('CLUSTER', 'INFO')).includes('cluster_state:fail'));
  const watched = openWatched(cluster.servers);
  closing.push(() => watched.store.close());
  await watched.down();
  expect(watched.states).toEqual([expect.stringMatching(/^CLUSTERDOWN /)]);
  await expect(watched.store.load('k')).rejects.toThrow('CLUSTERDOWN');
  await node?.command('CLUSTER', 'ADDSLOTS', LAST_SLOT);
  await watched.up();
});
