import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { RedisServer } from '../../support/redis.ts';
import { moveSlot, type RedisCluster, servesAll, startRedisCluster } from '../../support/redis-cluster.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import {
  areReady,
  CALL_MS,
  expectNoClientToNotice,
  nonceOf,
  shareANonce,
  useReplicas,
} from '../../support/replica-scene.ts';
import { until } from '../../support/until.ts';

const { closing, setScene } = useReplicas();

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster(3);
});
afterAll(() => cluster.close());
beforeEach(async () => {
  for (const node of cluster.nodes) await node.command('FLUSHALL');
});

interface Shared {
  /** The node with what the gateways share, and one without. */
  readonly owner: RedisServer;
  readonly other: RedisServer;
  readonly slot: number;
}

/** Resolves when something is. */
async function whatIsShared(): Promise<Shared> {
  const keys = () => Promise.all(cluster.nodes.map((node) => node.command('KEYS', 'test:*:shared')));
  await until(async () => (await keys()).flat().length > 0);
  const at = (await keys()).findIndex((held) => String(held) !== '');
  const [owner, other] = [cluster.nodes[at], cluster.nodes[(at + 1) % cluster.nodes.length]];
  const [key] = (await keys()).flat();
  if (owner === undefined || other === undefined) throw new Error('nothing is shared any more');
  return { owner, other, slot: Number(await owner.command('CLUSTER', 'KEYSLOT', String(key))) };
}

/** Kills a node; resolves to what starts it again as the member that it was. */
async function lose(node: RedisServer): Promise<() => Promise<void>> {
  const membership = await node.read('nodes.conf');
  await node.kill();
  let back: Promise<void> | undefined;
  const restart = (): Promise<void> => {
    back ??= (async () => {
      await node.restart({ files: { 'nodes.conf': membership } });
      for (const each of cluster.nodes) await servesAll(each);
    })();
    return back;
  };
  // For the tests that follow, however this one goes.
  closing.push(restart);
  return restart;
}

test('the node that holds what is shared is lost', async () => {
  let back = async (): Promise<void> => {};
  await expectNoClientToNotice(await setScene(), {
    redis: redisOptions(cluster.servers),
    begin: async () => {
      back = await lose((await whatIsShared()).owner);
    },
    end: () => back(),
    failing: ['replace', 'lead'],
  });
});

/** Two replicas under load, while something happens that they have to get over: nobody else notices. */
async function expectNobodyToNotice(happens: (shared: Shared) => Promise<unknown>): Promise<void> {
  const { simulator, replica, load: putUnderLoad } = await setScene();
  const options = redisOptions(cluster.servers);
  const replicas = [await replica(options), await replica(options)];
  await until(() => shareANonce(replicas));
  const load = putUnderLoad(replicas);
  const { challenges } = simulator.counts('submissions');
  await happens(await whatIsShared());
  await until(() => areReady(replicas));
  const late = await replica(options);
  await until(() => shareANonce([...replicas, late]));
  const { failures, slowestMs } = await load.end();
  expect(failures).toEqual([]);
  expect(slowestMs).toBeLessThan(CALL_MS);
  expect(simulator.counts('submissions').challenges).toBe(challenges);
}

test('a node that holds nothing of it is lost: once that is known nothing is degraded', async () => {
  await expectNobodyToNotice(({ other }) => lose(other));
});

test('what is shared moves to another node', async () => {
  await expectNobodyToNotice(async ({ slot, owner, other }) => {
    await moveSlot(slot, owner, other);
    expect((await whatIsShared()).owner).toBe(other);
  });
});

test('it is taken for one server, and what is shared moves away and back', async () => {
  const scene = await setScene();
  const first = await scene.replica(redisOptions(cluster.servers));
  await nonceOf(first);
  const { owner, other, slot } = await whatIsShared();
  await first.close();
  const pulse = Number(await owner.command('CLUSTER', 'KEYSLOT', 'test:v2:{pulse}'));
  for (const node of cluster.nodes) {
    if (node !== owner && (await serves(node, 'test:v2:{pulse}'))) await moveSlot(pulse, node, owner);
  }
  await expectNoClientToNotice(scene, {
    redis: redisOptions(single(owner.port)),
    begin: async () => {
      for (const each of [pulse, slot]) await moveSlot(each, owner, other);
    },
    end: async () => {
      for (const each of [pulse, slot]) await moveSlot(each, other, owner);
    },
    failing: ['replace', 'lead'],
  });
});

/** Whether the slot of this key is the node's. */
function serves(node: RedisServer, key: string): Promise<boolean> {
  return node.command('EXISTS', key).then(
    () => true,
    () => false,
  );
}
