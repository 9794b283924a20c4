import { hash } from 'node:crypto';
import { once } from 'node:events';
import { describe, expect, jest, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { Secret } from '../../src/base/secret.ts';
import type { RedisStoreOptions } from '../../src/challenges/store/redis.ts';
import { storeKeys } from '../../src/challenges/store/value-signer.ts';
import { aged, learned, parked, recalled } from '../support/challenges.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { openWatched, redisOptions, single, type WatchedStore } from '../support/redis-store.ts';
import { seesRedis } from '../support/replicas.ts';
import { type RunningScene, startScene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { setWallClock } from '../support/wall-clock.ts';

/** Somebody who can write to the Redis of the gateways, and has none of their keys. */
interface Intruder {
  readonly client: Redis;
  /** The challenge key of the last announcement; waits for the first. */
  key(): Promise<string>;
  /** Where a part of this key is stored. */
  place(key: string, part: 'shared' | 'parked' | 'learned' | 'accepted' | 'leader'): string;
  /** Puts a shared challenge of any content in place. */
  putShared(key: string, value: string, nonce: string, lifeMs?: number): Promise<void>;
  /** Announces a change under the key, as a gateway does. */
  announce(key: string): Promise<void>;
  close(): void;
}

/** `prefix`: what keys begin with. */
async function openIntruder(port: number, prefix = 'test:v2'): Promise<Intruder> {
  const client = new Redis(port, '127.0.0.1');
  const listener = new Redis(port, '127.0.0.1');
  await Promise.all([once(client, 'ready'), once(listener, 'ready')]);
  const first = Promise.withResolvers<void>();
  let heard = '';
  listener.on('message', (_channel, message: string) => {
    heard = message.slice(message.indexOf('['));
    first.resolve();
  });
  await listener.subscribe(`${prefix}:changes`);
  const place: Intruder['place'] = (key, part) => `${prefix}:{${hash('sha256', key)}}:${part}`;
  return {
    client,
    key: async () => {
      await first.promise;
      return heard;
    },
    place,
    async putShared(key, value, nonce, lifeMs = 60_000) {
      const at = place(key, 'shared');
      await client
        .multi()
        .del(at)
        .hset(at, 'nonce', nonce, 'value', value, 'max', lifeMs)
        .pexpire(at, lifeMs)
        .exec();
    },
    async announce(key) {
      await client.publish(`${prefix}:changes`, `00000000-0000-4000-8000-000000000000 ${key}`);
    },
    close() {
      client.disconnect();
      listener.disconnect();
    },
  };
}

/** The text of a shared challenge as a gateway writes it. */
function sharedText(challenge: string, cookies: readonly string[] = []): string {
  return JSON.stringify({ challenge, cookies });
}

const LONG_MS = 60_000;
const keysOf = (...digits: string[]) =>
  storeKeys(new Secret(digits.map((digit) => digit.repeat(64)).join('\n')));

async function openRedis(prefix?: string): Promise<{ redis: RedisServer; intruder: Intruder }> {
  const redis = await closedAtEnd(startRedis());
  const intruder = await closedAtEnd(openIntruder(redis.port, prefix));
  return { redis, intruder };
}

interface Scene extends RunningScene {
  readonly intruder: Intruder;
  /** The challenge key of the deployment. */
  readonly key: string;
  /** The request that the upstream got through the gateway. */
  echo(): Promise<string>;
  /** Values that were rejected, of this kind. */
  rejected(kind: string): Promise<number>;
}

/** A gateway that allows SHA-256 only, whose challenge is in Redis, before an upstream that offers MD5 as well. */
async function openShared(more: Partial<RedisStoreOptions> = {}, prefix?: string): Promise<Scene> {
  const { redis, intruder } = await openRedis(prefix);
  const pair = await startScene({
    behaviour: { algorithms: ['SHA-256', 'MD5'] },
    settings: { digest: { algorithms: ['SHA-256'] } },
    redis: redisOptions(single(redis.port), more),
  });
  await until(() => seesRedis(pair.gateway));
  const echo = async (): Promise<string> => {
    const answer = await pair.get('/echo');
    const body = await answer.text();
    if (answer.status !== 200) throw new Error(`${answer.status} ${body}`);
    return body;
  };
  await echo();
  const key = await intruder.key();
  await until(async () => (await intruder.client.exists(intruder.place(key, 'shared'))) === 1);
  const rejected = (kind: string) => pair.gateway.metric('digest_gateway_store_rejected_total', { kind });
  return { ...pair, intruder, key, echo, rejected };
}

const SHA = 'algorithm=SHA-256';
const realm = (simulated: string): string => /realm=\\"([^"\\]*)/.exec(simulated)?.[1] ?? '';

describe('a forged challenge', () => {
  const forged: [what: string, value: (realm: string) => string][] = [
    [
      'of an algorithm that the deployment does not allow',
      (r) => sharedText(`Digest realm="${r}", nonce="forged"`),
    ],
    ['of another realm', () => sharedText(`Digest realm="of the writer", nonce="forged", ${SHA}`)],
    [
      'whose algorithm holds another parameter',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", algorithm="SHA-256, username=\\"mallory\\""`),
    ],
    [
      'with a count, which has one owner',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", ${SHA}, qop="auth"`),
    ],
    [
      'with 300 cookies of 3 kB',
      (r) =>
        sharedText(
          `Digest realm="${r}", nonce="forged", ${SHA}`,
          Array.from({ length: 300 }, (_, at) => `c${at}=${'x'.repeat(3_000)}`),
        ),
    ],
    [
      'with 20 small cookies',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", ${SHA}`, Array(20).fill('forged=1')),
    ],
    [
      'with a line break in a cookie',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", ${SHA}`, ['forged=1\r\nX: y']),
    ],
    [
      'with a line break in its opaque',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", ${SHA}, opaque="a\r\nX: y"`),
    ],
    [
      'with an opaque of 5 kB',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", ${SHA}, opaque="${'o'.repeat(5_000)}"`),
    ],
    [
      'with two challenges',
      (r) => sharedText(`Digest realm="${r}", nonce="forged", ${SHA}, Digest realm="${r}", nonce="2"`),
    ],
    [
      'with another nonce than it is filed under',
      (r) => sharedText(`Digest realm="${r}", nonce="other", ${SHA}`),
    ],
    ['that is no JSON', () => '{'],
    ['of 1 MB', () => 'x'.repeat(1_000_000)],
  ];

  test.each(forged)('%s reaches neither upstream nor client, and is removed', async (_, value) => {
    const { simulator, intruder, key, echo } = await openShared();
    const before = await echo();
    await intruder.putShared(key, value(realm(before)), 'forged');
    await intruder.announce(key);
    const place = intruder.place(key, 'shared');
    await until(async () => (await intruder.client.hget(place, 'nonce')) !== 'forged');
    const after = await echo();
    expect(after).toContain('SHA-256');
    for (const text of ['forged', 'of the writer', 'mallory', 'MD5']) expect(after).not.toContain(text);
    expect(simulator.counts('submissions').challenges).toBe(1);
  });

  test('of another type is removed', async () => {
    const { intruder, key, echo, rejected } = await openShared();
    await intruder.client.set(intruder.place(key, 'shared'), 'x');
    await intruder.announce(key);
    await until(async () => (await intruder.client.type(intruder.place(key, 'shared'))) === 'hash');
    expect(await rejected('challenge')).toBe(1);
    await echo();
  });

  test('that looks right costs a refused attempt now and then, and is no evidence against the credential', async () => {
    const { simulator, gateway, intruder, key, echo, get } = await openShared();
    const name = realm(await echo());
    const place = intruder.place(key, 'shared');
    const statuses = new Set<number>();
    const refused = (): number =>
      Object.values(simulator.counts('submissions').refused).reduce((sum, count) => sum + count, 0);
    for (let round = 1; round <= 10; round += 1) {
      const before = refused();
      const nonce = `forged${round}`;
      await intruder.putShared(key, sharedText(`Digest realm="${name}", nonce="${nonce}", ${SHA}`), nonce);
      await intruder.announce(key);
      // Used once, or replaced by the gateway's own, or left alone.
      await until(async () => {
        statuses.add((await get('/echo')).status);
        return refused() > before || (await intruder.client.hget(place, 'nonce')) !== nonce;
      }, 700).catch(() => undefined);
    }
    expect(statuses).toEqual(new Set([200]));
    expect(refused()).toBeLessThanOrEqual(6);
    expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'refused' })).toBe(0);
    expect(await gateway.metric('digest_gateway_circuit_state')).toBe(0);
  });
});

describe('with a key', () => {
  test('a value without a signature is not used, and is removed', async () => {
    const { simulator, intruder, key, echo, rejected } = await openShared(
      { keys: keysOf('a') },
      'test:v2:signed',
    );
    const before = await echo();
    const text = sharedText(`Digest realm="${realm(before)}", nonce="forged", ${SHA}`);
    await intruder.putShared(key, text, 'forged');
    await intruder.announce(key);
    await until(async () => (await rejected('change')) === 1);
    expect(await rejected('challenge')).toBe(0);
    expect(await echo()).toBe(before);
    expect(simulator.counts('submissions').challenges).toBe(1);
  });

  interface Signed {
    readonly intruder: Intruder;
    open(...digits: string[]): Promise<WatchedStore>;
  }
  async function signedStores(): Promise<Signed> {
    const { redis, intruder } = await openRedis('test:v2:signed');
    return {
      intruder,
      async open(...digits) {
        const watched = openWatched(single(redis.port), { keys: keysOf(...digits) });
        closing.push(() => watched.store.close());
        await watched.up();
        return watched;
      },
    };
  }

  test.each([
    ['before', ['a'], ['b', 'a']],
    ['after', ['b', 'a'], ['b']],
  ])('every kind of value is read %s a new key is the first of the file', async (_, writing, reading) => {
    const { open } = await signedStores();
    const [writer, reader] = [await open(...writing), await open(...reading)];
    await reader.store.load('k');
    await writer.store.replace('k', undefined, aged('n'), LONG_MS);
    expect((await reader.store.load('k'))?.challenge.nonce).toBe('n');
    await writer.store.park('k', parked('p', 3), LONG_MS);
    expect(await reader.store.take('k')).toMatchObject({ count: 3 });
    await writer.store.learn('k', learned);
    expect(await reader.store.recall('k')).toEqual(recalled);
    expect(await writer.store.lead('k', LONG_MS)).toBe(true);
    expect(await reader.store.lead('k', LONG_MS)).toBe(false);
    await until(() => reader.changes.includes('k'));
    expect(reader.rejections).toEqual([]);
  });

  test.each([
    ['hours ahead', Date.now() + 7_200_000],
    ['at 1970', 0],
  ])('a lock is held by a process that started with its clock %s, once it is right', async (_, clock) => {
    const { open } = await signedStores();
    setWallClock(clock);
    const early = await open('a').finally(() => jest.useRealTimers());
    const other = await open('a');
    expect(await early.store.lead('k', LONG_MS)).toBe(true);
    expect(await other.store.lead('k', LONG_MS)).toBe(false);
    expect(await early.store.lead('k', LONG_MS)).toBe(true);
    expect(other.rejections).toEqual([]);
  });

  test('a value of a removed key, of another key of challenges or of another kind is rejected', async () => {
    const { intruder, open } = await signedStores();
    const [old, now] = [await open('a'), await open('b')];
    await old.store.learn('k', learned);
    expect(await now.store.recall('k')).toBeUndefined();
    expect(await intruder.client.exists(intruder.place('k', 'learned'))).toBe(0);
    await now.store.learn('k', learned);
    await intruder.client.copy(intruder.place('k', 'learned'), intruder.place('other', 'learned'));
    expect(await now.store.recall('other')).toBeUndefined();
    await now.store.noteAccepted('k', LONG_MS);
    await intruder.client.copy(intruder.place('k', 'accepted'), intruder.place('other', 'accepted'));
    expect([await now.store.acceptedAgo('k'), await now.store.acceptedAgo('other')]).toEqual([
      expect.any(Number),
      undefined,
    ]);
    await now.store.replace('k', undefined, aged('n'), LONG_MS);
    await intruder.client.copy(intruder.place('k', 'shared'), intruder.place('other', 'shared'));
    expect(await now.store.load('other')).toBeUndefined();
    expect(now.rejections.filter(([kind]) => kind !== 'change')).toEqual([
      ['learned', 'forged'],
      ['learned', 'forged'],
      ['accepted', 'forged'],
      ['challenge', 'forged'],
    ]);
    expect(await now.store.recall('k')).toEqual(recalled);
  });

  test('an old value that comes back is rejected after its lifetime', async () => {
    const { intruder, open } = await signedStores();
    const { store, rejections } = await open('a');
    // It was issued so long ago that its time is over but for a difference of clocks.
    await store.park('k', parked('n', 1, 0), 1);
    const shared = { ...aged('old', 0) };
    await store.replace('k', undefined, shared, LONG_MS);
    const value = String(await intruder.client.hget(intruder.place('k', 'shared'), 'value'));
    const [id, mac, , life, ...text] = value.split('.');
    await intruder.putShared('k', [id, mac, Date.now() - 10 * LONG_MS, life, ...text].join('.'), 'old');
    expect(await store.load('k')).toBeUndefined();
    await store.replace('k', undefined, aged('aged', 3 * LONG_MS), 4 * LONG_MS);
    const before = String(await intruder.client.hget(intruder.place('k', 'shared'), 'value'));
    await intruder.putShared('k', before, 'aged', 24 * 60 * LONG_MS);
    // Redis says that it is brand-new, and its signature that it is three minutes old.
    expect((await store.load('k'))?.ageMs).toBeGreaterThanOrEqual(2 * LONG_MS);
    expect(rejections).toEqual([['challenge', 'forged']]);
  });

  test('an unsigned lock has no effect', async () => {
    const { intruder, open } = await signedStores();
    const { store, rejections } = await open('a');
    for (const forged of ['00000000-0000-4000-8000-000000000000', 'x', '\u0000', 'x'.repeat(300)]) {
      await intruder.client.set(intruder.place('k', 'leader'), forged, 'PX', LONG_MS);
      expect(await store.lead('k', LONG_MS)).toBe(true);
    }
    expect(rejections).toHaveLength(3);
  });
});

describe('without a key', () => {
  let watched: WatchedStore;
  async function openStore(): Promise<Intruder> {
    const { redis, intruder } = await openRedis();
    watched = openWatched(single(redis.port));
    closing.push(() => watched.store.close());
    await watched.up();
    return intruder;
  }

  test('a lock that never expires has no effect', async () => {
    const { client, place } = await openStore();
    const stranger = '00000000-0000-4000-8000-000000000000';
    await client.set(place('k', 'leader'), stranger, 'PX', LONG_MS);
    expect(await watched.store.lead('k', LONG_MS)).toBe(false);
    await client.set(place('k', 'leader'), stranger);
    expect(await watched.store.lead('k', LONG_MS)).toBe(true);
    await client.set(place('k', 'leader'), stranger, 'EX', 10 * 86_400);
    expect(await watched.store.lead('k', LONG_MS)).toBe(true);
    await client.del(place('k', 'leader'));
    await client.rpush(place('k', 'leader'), stranger);
    expect(await watched.store.lead('k', LONG_MS)).toBe(true);
  });

  const { ageMs: _, ...facts } = { ...learned, lifetimeMs: 5_000 };
  test.each([
    ['a lifetime that no timer measures', { ...facts, lifetimeMs: 9e9 }],
    ['a lifetime of nothing', { ...facts, lifetimeMs: 0.001 }],
    ['a negative lifetime', { ...facts, lifetimeMs: -1 }],
    ['a lifetime that is no number', { ...facts, lifetimeMs: null }],
    ['an unknown policy', { ...facts, policy: 'never' }],
    ['an unknown algorithm', { ...facts, algorithm: 'MD5, username="mallory"' }],
    ['a realm of 2 kB', { ...facts, realm: 'r'.repeat(2_000) }],
    ['more than there is', { ...facts, more: true }],
  ])('%s is rejected and removed', async (_, forged) => {
    const { client, place } = await openStore();
    await client.set(place('k', 'learned'), JSON.stringify(facts), 'PX', LONG_MS);
    expect(await watched.store.recall('k')).toEqual({ ...facts, ageMs: expect.any(Number) });
    await client.set(place('k', 'learned'), JSON.stringify(forged), 'PX', LONG_MS);
    expect(await watched.store.recall('k')).toBeUndefined();
    expect(await client.exists(place('k', 'learned'))).toBe(0);
    expect(watched.rejections).toEqual([['learned', 'malformed']]);
  });

  test.each([
    ['without end', []],
    ['for longer than an hour', ['PX', 60 * LONG_MS + LONG_MS]],
  ] as const)('facts that are to stay %s are rejected and removed', async (_, expiry) => {
    const { client, place } = await openStore();
    await client.call('SET', place('k', 'learned'), JSON.stringify(facts), ...expiry);
    expect(await watched.store.recall('k')).toBeUndefined();
    expect(await client.exists(place('k', 'learned'))).toBe(0);
    expect(watched.rejections).toEqual([['learned', 'malformed']]);
  });

  test('a note that no gateway makes counts as none, and is removed', async () => {
    const { client, place } = await openStore();
    await client.set(place('k', 'accepted'), 'yes');
    expect(await watched.store.acceptedAgo('k')).toBeUndefined();
    await client.rpush(place('k', 'accepted'), 'accepted');
    expect(await watched.store.acceptedAgo('k')).toBeUndefined();
    expect(await client.exists(place('k', 'accepted'))).toBe(0);
    expect(watched.rejections).toEqual(Array(2).fill(['accepted', 'malformed']));
  });

  test('a value of 100 MB stays in Redis', async () => {
    const { client, place } = await openStore();
    await client.setrange(place('k', 'learned'), '100000000', 'x');
    await client.hset(place('k', 'shared'), 'value', 'x'.repeat(1_000_000), 'nonce', 'n', 'max', 1);
    const before = process.memoryUsage().rss;
    expect(await watched.store.recall('k')).toBeUndefined();
    expect(await watched.store.load('k')).toBeUndefined();
    expect(process.memoryUsage().rss - before).toBeLessThan(50_000_000);
    expect(await client.exists(place('k', 'learned'), place('k', 'shared'))).toBe(0);
  });

  test('forged parked challenges are skipped, a bounded number of them', async () => {
    const { client, place } = await openStore();
    const { store, rejections } = watched;
    const at = place('k', 'parked');
    await store.park('k', parked('good', 1), LONG_MS);
    const good = String((await client.zrange(at, '0', '-1'))[0]);
    const strange = [
      'nothing',
      '60000 {}',
      '60000 '.padEnd(100_000, 'x'),
      good.replace('"count":1', '"count":4294967296'),
      good.replace('"count":1', '"count":-1'),
      good.replace('cnonce of good', 'c\\u0001'),
    ];
    for (const [index, member] of strange.entries())
      await client.zadd(at, Date.now() + 1_000 + index, member);
    await client.zadd(at, 'inf', `${'9'.repeat(400)} {}`);
    expect((await store.take('k'))?.challenge.nonce).toBe('good');
    expect(rejections).toHaveLength(strange.length + 1);

    const crowd = Array.from({ length: 100 }, (_, index) => [Date.now(), `60000 {}${index}`]).flat();
    await client.call('ZADD', at, ...crowd);
    expect(await store.take('k')).toBeUndefined();
    expect(await client.zcard(at)).toBeGreaterThan(80);
    await client.call('ZADD', at, ...Array.from({ length: 400 }, (_, index) => [index, `x${index}`]).flat());
    expect(await store.take('k')).toBeUndefined();
    expect(await client.zcard(at)).toBe(0);
  });

  test('many announcements cause little work', async () => {
    const { client, announce } = await openStore();
    await watched.store.load('k');
    const messages = 20_000;
    for (let sent = 0; sent < messages; sent += 1) void announce('k');
    for (const other of ['unused', 'x'.repeat(10_000)]) await announce(other);
    await client.publish('test:v2:changes', 'nonsense');
    await until(() => watched.rejections.length === 2);
    expect(watched.rejections).toEqual([
      ['change', 'malformed'],
      ['change', 'malformed'],
    ]);
    expect(new Set(watched.changes)).toEqual(new Set(['k']));
    expect(watched.changes.length).toBeLessThan(messages / 20);
  });
});
