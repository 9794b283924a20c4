import { hash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { openRedisLimits } from '../../../src/limits/redis.ts';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import { aged, parked } from '../../support/challenges.ts';
import { inTime } from '../../support/in-time.ts';
import { unused } from '../../support/limited.ts';
import type { RedisServer } from '../../support/redis.ts';
import { type RedisCluster, servesAll, startRedisCluster } from '../../support/redis-cluster.ts';
import { openWatched, redisOptions, single, type WatchedStore } from '../../support/redis-store.ts';
import { until } from '../../support/until.ts';

const LONG_MS = 60_000;

let cluster: RedisCluster;
let watched: WatchedStore;
let other: WatchedStore;
// A master that has just started serves nothing for 2 s: one Cluster for all.
beforeAll(async () => {
  cluster = await startRedisCluster(3);
});
afterAll(() => cluster.close());
beforeEach(async () => {
  for (const node of cluster.nodes) await node.command('FLUSHALL');
  [watched, other] = [
    openWatched(cluster.servers, { timeoutMs: 100 }),
    openWatched(cluster.servers, { timeoutMs: 100 }),
  ];
  await Promise.all([watched.up(), other.up()]);
});
afterEach(async () => {
  await Promise.all([watched.store.close(), other.store.close()]);
});

/** A key whose state lives on each node, in the order of the nodes. */
async function keyOnEachNode(): Promise<string[]> {
  const keys = new Map<number, string>();
  for (let number = 0; keys.size < 3; number += 1) {
    const slot = await nodeAt(0).command('CLUSTER', 'KEYSLOT', hash('sha256', `k${number}`));
    const owner = Math.floor((Number(slot) * 3) / 16_384);
    keys.set(owner, keys.get(owner) ?? `k${number}`);
  }
  return [0, 1, 2].map((owner) => keys.get(owner) ?? '');
}

function nodeAt(at: number): RedisServer {
  const node = cluster.nodes[at];
  if (node === undefined) throw new Error('no such node');
  return node;
}

test('all is shared, wherever it lives', async () => {
  for (const key of await keyOnEachNode()) {
    await watched.store.replace(key, undefined, aged('1'), LONG_MS);
    expect((await other.store.load(key))?.challenge.nonce).toBe('1');
    await until(() => other.changes.includes(key));
    await watched.store.park(key, parked('2', 3), LONG_MS);
    expect((await other.store.take(key))?.count).toBe(3);
    expect(await watched.store.lead(key, LONG_MS)).toBe(true);
    expect(await other.store.lead(key, LONG_MS)).toBe(false);
  }
  expect([...watched.failures, ...other.failures]).toEqual([]);
});

test('limits are shared, wherever they live', async () => {
  const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
  const options = redisOptions({ kind: 'cluster', nodes });
  const [one, two] = [0, 1].map(() => openRedisLimits(options, () => {}));
  if (one === undefined || two === undefined) throw new Error('no store');
  for (const name of ['client:a', 'client:b', 'client:c', 'client:d', 'client:e']) {
    const used = { ...unused(), total: 3 };
    await until(() => one.settle(name, used).then(Boolean, () => false));
    await until(() => two.settle(name, used).then(Boolean, () => false));
    expect(await one.settle(name, used)).toMatchObject({ used: 6, members: 2 });
  }
  await Promise.all([one.close(), two.close()]);
});

test('a node that is lost takes only its own keys along, until it is back', async () => {
  const keys = await keyOnEachNode();
  const [first = '', second = '', third = ''] = keys;
  for (const key of keys) await watched.store.replace(key, undefined, aged('1'), LONG_MS);
  const membership = await nodeAt(2).read('nodes.conf');
  await nodeAt(2).kill();

  for (let round = 2; round < 12; round += 1) {
    await expect(inTime(watched.store.load(third))).rejects.toThrow();
    for (const key of [first, second]) {
      const held = await watched.store.replace(key, `${round - 1}`, aged(`${round}`), LONG_MS);
      expect(held.challenge.nonce).toBe(`${round}`);
    }
  }
  await watched.down();

  await nodeAt(2).restart({ files: { 'nodes.conf': membership } });
  for (const node of cluster.nodes) await servesAll(node);
  expect(await watched.up()).toBeLessThan(10_000);
  await watched.store.replace(third, undefined, aged('2'), LONG_MS);
  await until(async () => (await other.store.load(third).catch(() => undefined)) !== undefined);
  expect((await other.store.load(third))?.challenge.nonce).toBe('2');
});

test('a node that hangs holds nobody back for longer than a call may take', async () => {
  const [first = '', , third = ''] = await keyOnEachNode();
  await watched.store.load(third);
  await nodeAt(2).hang();
  await expect(inTime(watched.store.lead(third, LONG_MS))).rejects.toThrow('within 100 ms');
  expect(await watched.store.lead(first, LONG_MS)).toBe(true);
  await watched.down();
  await nodeAt(2).goOn();
  expect(await watched.up()).toBeLessThan(10_000);
  expect(await other.store.lead(third, LONG_MS)).toBe(true);
});

test('who takes a Cluster for one server is told where the state is, and no more', async () => {
  const [, , third = ''] = await keyOnEachNode();
  const mistaken = openWatched(single(nodeAt(0).port));
  await expect(mistaken.store.load(third)).rejects.toThrow('MOVED');
  await mistaken.store.close();
});

test('with TLS, to each node', async () => {
  const { ca, server } = await createCertificates();
  const guarded = await startRedisCluster(2, { certificate: server.good, ca });
  const store = openWatched(guarded.servers, { tls: { ca } });
  const stranger = openWatched(guarded.servers, { tls: { ca: undefined } });
  await store.up();
  for (const key of await keyOnEachNode()) {
    await store.store.replace(key, undefined, aged('1'), LONG_MS);
    expect((await store.store.load(key))?.challenge.nonce).toBe('1');
  }
  for (const node of guarded.nodes) expect(await node.command('DBSIZE')).toBeGreaterThan(0);
  expect(store.failures).toEqual([]);
  await stranger.down();
  expect(stranger.states.at(-1)).toMatch(/certificate/);
  await Promise.all([store.store.close(), stranger.store.close()]);
  await guarded.close();
});
