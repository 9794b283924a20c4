import { hash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import type { RedisStoreOptions } from '../../src/challenges/store/redis.ts';
import { RedisLimitStore } from '../../src/limits/redis.ts';
import { createCertificates } from '../../src/simulator/certificates.ts';
import { aged, parked } from '../support/challenges.ts';
import { closing } from '../support/closing.ts';
import { unused } from '../support/limited.ts';
import {
  loseNode,
  type RedisCluster,
  type RedisSentinel,
  type RedisServer,
  type RedisSetup,
  startRedis,
  startRedisCluster,
  startRedisSentinel,
} from '../support/redis.ts';
import {
  CALL_MS,
  inTime,
  openWatched,
  redisOptions,
  single,
  type WatchedStore,
} from '../support/redis-store.ts';
import { repository } from '../support/repository.ts';
import { until } from '../support/until.ts';

const LONG_MS = 60_000;
/** The rights of a user that docs/operate/redis.md lists: everywhere, in a Cluster besides, and at the Sentinels. */
const [RIGHTS = '', RIGHTS_IN_CLUSTER = '', RIGHTS_AT_SENTINELS = ''] = Array.from(
  (await readFile(join(repository, 'docs/operate/redis.md'), 'utf8'))
    .replaceAll(/\s+/g, ' ')
    .matchAll(/(?:-@all|\+cluster)[^`]*/g),
  ([rights]) => rights,
);
const certificates = createCertificates();

describe('a Cluster', () => {
  // Undone however the test ends, since the tests that follow use the same Cluster.
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
    [watched, other] = [openWatched(cluster.servers), openWatched(cluster.servers)];
    await Promise.all([watched.up(), other.up()]);
  });
  afterEach(async () => {
    await Promise.all([watched.store.close(), other.store.close()]);
  });

  /** Opens a store whose calls end in time; those of the others have as long as a busy machine may need. */
  async function openQuick(): Promise<WatchedStore> {
    const quick = openWatched(cluster.servers, { timeoutMs: CALL_MS });
    closing.push(() => quick.store.close());
    await quick.up();
    return quick;
  }

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

  test('shares everything, on each node', async () => {
    for (const key of await keyOnEachNode()) {
      expect(await other.store.load(key)).toBeUndefined();
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

  test('gets one pulse on a node, however many keys are in use there', async () => {
    await other.store.close();
    const keys = Array.from({ length: 60 }, (_, number) => `k${number}`);
    for (const key of keys) await watched.store.load(key);
    const pulses = (tag: string) => nodeAt(0).command('KEYS', `test:v2:{${tag}}:pulse:*`);
    /** Resolves when the process has noticed that a node lost its data, and told of all keys. */
    const loseData = async (tag: string): Promise<void> => {
      await until(async () => String(await pulses(tag)) !== '');
      watched.changes.splice(0);
      await nodeAt(0).command('FLUSHALL');
      await until(() => watched.changes.length > 0);
    };
    await loseData('*');
    expect(watched.changes).toEqual(keys);
    expect(await pulses('*')).toHaveLength(1);

    const [first = ''] = await keyOnEachNode();
    for (const key of keys) if (key !== first) watched.store.release(key);
    await loseData(hash('sha256', first));
    expect(watched.changes).toEqual([first]);
  });

  test('shares limits, on each node', async () => {
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const options = redisOptions({ kind: 'cluster', nodes });
    const [one, two] = [0, 1].map(() => new RedisLimitStore(options, () => {}));
    if (one === undefined || two === undefined) throw new Error('no store');
    for (const name of ['client:a', 'client:b', 'client:c', 'client:d', 'client:e']) {
      const used = { ...unused(), total: 3 };
      await until(() => one.settle(name, used).then(Boolean, () => false));
      await until(() => two.settle(name, used).then(Boolean, () => false));
      expect(await one.settle(name, used)).toMatchObject({ used: 6, members: 2 });
    }
    await Promise.all([one.close(), two.close()]);
  });

  test('loses only the keys of a lost node, until that is back', async () => {
    const keys = await keyOnEachNode();
    const [first = '', second = '', third = ''] = keys;
    for (const key of keys) await watched.store.replace(key, undefined, aged('1'), LONG_MS);
    const quick = await openQuick();
    const restart = await loseNode(cluster, nodeAt(2));
    closing.push(restart);

    await expect(watched.store.load(third)).rejects.toThrow();
    for (let round = 2; round < 12; round += 1) {
      await expect(inTime(quick.store.load(third))).rejects.toThrow();
      for (const key of [first, second]) {
        const held = await watched.store.replace(key, `${round - 1}`, aged(`${round}`), LONG_MS);
        expect(held.challenge.nonce).toBe(`${round}`);
      }
    }
    await watched.down();

    await restart();
    expect(await watched.up()).toBeLessThan(10_000);
    await watched.store.replace(third, undefined, aged('2'), LONG_MS);
    await until(async () => (await other.store.load(third).catch(() => undefined)) !== undefined);
    expect((await other.store.load(third))?.challenge.nonce).toBe('2');
  });

  test('ends calls to a node that hangs in time', async () => {
    const [first = '', , third = ''] = await keyOnEachNode();
    await watched.store.load(third);
    const quick = await openQuick();
    await nodeAt(2).hang();
    closing.push(() => nodeAt(2).goOn());
    await expect(inTime(quick.store.lead(third, LONG_MS))).rejects.toThrow(String(CALL_MS));
    const hanging = expect(watched.store.lead(third, LONG_MS)).rejects.toThrow();
    expect(await watched.store.lead(first, LONG_MS)).toBe(true);
    await hanging;
    await watched.down();
    await nodeAt(2).goOn();
    expect(await watched.up()).toBeLessThan(10_000);
    expect(await other.store.lead(third, LONG_MS)).toBe(true);
  });

  test('reports itself to a client that is configured for one server', async () => {
    const [, , third = ''] = await keyOnEachNode();
    const mistaken = openWatched(single(nodeAt(0).port));
    await expect(mistaken.store.load(third)).rejects.toThrow('MOVED');
    await mistaken.store.close();
  });

  test('is used by a user of its own, who may do no more than needed', async () => {
    const rights = `on >hunter2 ~test:* &test:* ${RIGHTS} ${RIGHTS_IN_CLUSTER}`.split(' ');
    for (const node of cluster.nodes) await node.command('ACL', 'SETUSER', 'gateway', ...rights);
    const limited = openWatched(cluster.servers, { username: 'gateway', password: new Secret('hunter2') });
    await limited.up();
    for (const key of await keyOnEachNode()) {
      await limited.store.replace(key, undefined, aged('1'), LONG_MS);
      expect((await limited.store.load(key))?.challenge.nonce).toBe('1');
    }
    expect(limited.failures).toEqual([]);
    await limited.store.close();
    for (const node of cluster.nodes) await node.command('ACL', 'DELUSER', 'gateway');
  });

  test('is connected to with TLS on each node', async () => {
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
});

describe('Sentinels', () => {
  let redis: RedisSentinel;
  const stores: WatchedStore[] = [];
  afterEach(async () => {
    await Promise.all(stores.splice(0).map(({ store }) => store.close()));
    await redis.close();
  });

  /** Two processes that look for the master. */
  function openBoth(more: Partial<RedisStoreOptions> = {}): [WatchedStore, WatchedStore] {
    const { servers, replica } = redis;
    // The first is none, and does not know the answer; the library prints a warning when it sends one a password.
    const wrong = more.sentinelPassword === undefined ? [{ host: '127.0.0.1', port: replica.port }] : [];
    const open = () => openWatched({ ...servers, sentinels: [...wrong, ...servers.sentinels] }, more);
    const both: [WatchedStore, WatchedStore] = [open(), open()];
    stores.push(...both);
    return both;
  }

  async function expectToShare([watched, other]: [WatchedStore, WatchedStore]): Promise<void> {
    await Promise.all([watched.up(), other.up()]);
    await watched.store.replace('k', undefined, aged('1'), LONG_MS);
    expect((await other.store.load('k'))?.challenge.nonce).toBe('1');
    expect([...watched.failures, ...other.failures]).toEqual([]);
  }

  test('are connected to with TLS', async () => {
    const { ca, server } = await certificates;
    redis = await startRedisSentinel({ tls: { certificate: server.good, ca } });
    await expectToShare(openBoth({ tls: { ca } }));
    const [stranger] = openBoth({ tls: { ca: undefined } });
    await stranger.down();
    expect(stranger.states.at(-1)).toMatch(/sentinels are unreachable/);
  });

  test('promote a replica that continues with what was shared', async () => {
    redis = await startRedisSentinel();
    const [watched, other] = openBoth();
    await Promise.all([watched.up(), other.up()]);
    await watched.store.replace('k', undefined, aged('1', 1_000), LONG_MS);
    await until(async () => Number(await redis.replica.command('DBSIZE')) > 1);
    await redis.master.kill();
    await expect(watched.store.load('k')).rejects.toThrow();
    await watched.down();

    // The Sentinel ends every connection of the replica that it promotes.
    await redis.promoted();
    expect(await watched.up()).toBeLessThan(10_000);
    await other.up();
    const held = await other.store.load('k');
    expect(held?.challenge.nonce).toBe('1');
    expect(held?.ageMs).toBeGreaterThan(1_000);

    other.changes.splice(0);
    await watched.store.replace('k', '1', aged('2'), LONG_MS);
    await until(() => other.changes.includes('k'));
    expect((await other.store.load('k'))?.challenge.nonce).toBe('2');
  });

  describe('with a password', () => {
    const settings = ['requirepass hunter2', `user gateway on >hunter3 ${RIGHTS_AT_SENTINELS}`];

    test.each([
      ['of everybody', { sentinelPassword: new Secret('hunter2') }],
      ['of a user', { sentinelUsername: 'gateway', sentinelPassword: new Secret('hunter3') }],
    ])('%s get it, and Redis gets its own or none', async (_whose, guard) => {
      redis = await startRedisSentinel({ settings });
      await expectToShare(openBoth(guard));
    });

    test.each([
      ['missing', {}, /NOAUTH/],
      ['wrong', { sentinelPassword: new Secret('hunter2 and more') }, /WRONGPASS/],
    ])('that is %s: the error says so, without the password', async (_how, guard, reason) => {
      redis = await startRedisSentinel({ settings });
      const [watched] = openBoth(guard);
      await watched.down();
      expect(watched.states.at(-1)).toMatch(reason);
      expect(inspect(watched, { depth: 10, showHidden: true })).not.toContain('hunter2');
    });
  });
});

describe('a server is guarded', () => {
  let redis: RedisServer;
  let watched: WatchedStore;
  afterEach(async () => {
    await watched.store.close();
    await redis.close();
  });

  async function open(setup: RedisSetup, more: Partial<RedisStoreOptions>): Promise<void> {
    redis = await startRedis(setup);
    watched = openWatched(single(redis.port), more);
  }

  async function expectUse(): Promise<void> {
    await watched.up();
    await watched.store.replace('k', undefined, aged('1'), 60_000);
    expect((await watched.store.load('k'))?.challenge.nonce).toBe('1');
    expect(watched.failures).toEqual([]);
  }

  /** The store is down for this reason; its calls fail in time, and nothing says the password. */
  async function expectRefusal(reason: RegExp): Promise<void> {
    await watched.down();
    expect(watched.states.at(-1)).toMatch(reason);
    await expect(inTime(watched.store.load('k'))).rejects.toThrow(reason);
    expect(watched.failures.map(({ operation }) => operation)).toEqual(['load']);
    expect(inspect(watched, { depth: 10, showHidden: true })).not.toContain('hunter2');
  }

  const ACL = ['user default off', `user gateway on >hunter2 ~test:* &test:* ${RIGHTS}`];

  test('by the password of everybody', async () => {
    await open({ settings: ['requirepass hunter2'] }, { password: new Secret('hunter2') });
    await expectUse();
  });

  test('by a user of its own, who may do no more than needed', async () => {
    await open({ settings: ACL }, { username: 'gateway', password: new Secret('hunter2') });
    await expectUse();
  });

  test('by a password that is missing', async () => {
    await open({ settings: ['requirepass hunter1'] }, {});
    await expectRefusal(/NOAUTH/);
  });

  test('by a password that is wrong', async () => {
    await open({ settings: ACL }, { username: 'gateway', password: new Secret('hunter2 and more') });
    await expectRefusal(/WRONGPASS/);
  });

  test('by permissions that leave its channels out', async () => {
    const settings = ACL.map((line) => line.replace('&test:*', '&other:*'));
    await open({ settings }, { username: 'gateway', password: new Secret('hunter2') });
    await watched.down();
    expect(watched.states.at(-1)).toMatch(/can't publish to the channel/);
  });

  test('by TLS, with the authority that signed its certificate', async () => {
    const { ca, server } = await certificates;
    await open({ certificate: server.good }, { tls: { ca } });
    await expectUse();
  });

  test('by TLS, with a certificate of an authority that nobody knows', async () => {
    const { ca, server } = await certificates;
    await open({ certificate: server.foreign }, { tls: { ca }, password: new Secret('hunter2') });
    await expectRefusal(/certificate/);
  });

  test('by TLS, with a certificate for another host', async () => {
    const { ca, server } = await certificates;
    await open({ certificate: server['wrong-host'] }, { tls: { ca } });
    await expectRefusal(/does not match certificate/);
  });

  test('by no TLS where it is asked for', async () => {
    await open({}, { tls: { ca: undefined } });
    await expectRefusal(/./);
  });
});
