import { hash, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { LEARNED_MS } from '../../src/challenges/store/store.ts';
import { storeKeys } from '../../src/challenges/store/value-signer.ts';
import { aged, learned, parked, recalled } from '../support/challenges.ts';
import { closing } from '../support/closing.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { openWatched, single, type WatchedStore } from '../support/redis-store.ts';
import { until } from '../support/until.ts';

const LONG_MS = 60_000;
const DAY_MS = 24 * 60 * 60_000;
/** How long Redis stands still, in milliseconds. */
const PAUSE_MS = 200;
/** Parked challenges that one call passes over. */
const TAKEN_AT_MOST = 8;

let redis: RedisServer;
/** Of one test alone. */
let key: string;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.close());
beforeEach(() => {
  key = randomUUID();
});

async function open(more: Parameters<typeof openWatched>[1] = {}, at = redis): Promise<WatchedStore> {
  const watched = openWatched(single(at.port), more);
  closing.push(() => watched.store.close());
  await watched.up();
  return watched;
}

type Part = 'shared' | 'parked' | 'learned' | 'accepted' | 'leader';
const place = (part: Part, prefix = 'test:v2'): string => `${prefix}:{${hash('sha256', key)}}:${part}`;
const pause = (): Promise<unknown> => redis.command('CLIENT', 'PAUSE', PAUSE_MS);

describe('an age counts the time that a call takes', () => {
  test('to replace a challenge', async () => {
    const { store } = await open();
    await pause();
    await store.replace(key, undefined, aged('n', 1_000), LONG_MS);
    expect((await store.load(key))?.ageMs).toBeGreaterThanOrEqual(1_000);
  });

  test('to leave one', async () => {
    const { store } = await open();
    await pause();
    await store.park(key, parked('n', 1, 1_000), LONG_MS);
    expect((await store.take(key))?.ageMs).toBeGreaterThanOrEqual(1_000);
  });

  test.each(['load', 'take'] as const)('to %s one', async (operation) => {
    const { store } = await open();
    await store.replace(key, undefined, aged('n', 1_000), LONG_MS);
    await store.park(key, parked('n', 1, 1_000), LONG_MS);
    await pause();
    const start = performance.now();
    const held = await store[operation](key);
    // Redis counts whole milliseconds.
    expect(held?.ageMs).toBeGreaterThanOrEqual(1_000 + performance.now() - start - 1);
  });
});

describe('a value that no gateway wrote', () => {
  const putShared = (...fields: string[]) => redis.command('HSET', place('shared'), ...fields);

  test('is replaced like none', async () => {
    const { store, rejections } = await open();
    await putShared('nonce', 'forged', 'value', 'x', 'max', '60000');
    expect(await store.replace(key, undefined, aged('n'), LONG_MS)).toEqual(aged('n'));
    expect((await store.load(key))?.challenge.nonce).toBe('n');
    expect(rejections).toEqual([['challenge', 'malformed']]);
  });

  test('is removed if its lifetime is no number', async () => {
    const { store, rejections } = await open();
    await putShared('nonce', 'forged', 'value', 'x', 'max', 'long');
    expect(await store.load(key)).toBe(undefined);
    expect(await redis.command('EXISTS', place('shared'))).toBe(0);
    expect(rejections).toEqual([['challenge', 'malformed']]);
  });

  test('is passed over eight times by one call', async () => {
    const { store, rejections } = await open();
    await store.park(key, parked('good', 1), LONG_MS);
    for (let at = 1; at <= TAKEN_AT_MOST; at += 1)
      await redis.command('ZADD', place('parked'), Date.now() + 1_000 + at, `forged ${at}`);
    expect(await store.take(key)).toBe(undefined);
    expect((await store.take(key))?.challenge.nonce).toBe('good');
    expect(rejections).toHaveLength(TAKEN_AT_MOST);
  });

  test.each([
    ['with a text before the time', 'x5000', 4_000],
    ['with a text after the time', '5000x', 4_000],
    ['that stays longer than it says', '5000', LONG_MS],
    ['that never expires', '5000', undefined],
  ])('is no note of acceptance: %s', async (_, text, leftMs) => {
    const { store, rejections } = await open();
    await redis.command('SET', place('accepted'), text, ...(leftMs === undefined ? [] : ['PX', leftMs]));
    expect(await store.acceptedAgo(key)).toBe(undefined);
    expect(rejections).toEqual([['accepted', 'malformed']]);
  });

  test.each([
    ['before', (name: string) => `x${name}`],
    ['after', (name: string) => `${name}x`],
  ])('is no leader: a text %s the name', async (_, forged) => {
    const { store, rejections } = await open();
    await redis.command('SET', place('leader'), forged(randomUUID()), 'PX', LONG_MS);
    expect(await store.lead(key, LONG_MS)).toBe(true);
    expect(rejections).toEqual([['leader', 'malformed']]);
  });
});

test('that nothing is held is no fault', async () => {
  const { store, rejections } = await open();
  const held = [store.load(key), store.take(key), store.recall(key), store.acceptedAgo(key)];
  expect(await Promise.all(held)).toEqual(Array(4).fill(undefined));
  expect(rejections).toEqual([]);
});

test('what was learned stays until an hour after it was learned first', async () => {
  const { store } = await open();
  await store.learn(key, { ...learned, ageMs: LONG_MS });
  for (let count = 0; count < 2; count += 1) expect(await store.recall(key)).toEqual(recalled);
  const left = Number(await redis.command('PTTL', place('learned')));
  expect(left).toBeGreaterThan(LEARNED_MS - 2 * LONG_MS);
  expect(left).toBeLessThanOrEqual(LEARNED_MS - LONG_MS);
});

test('it is known how long ago a credential was accepted', async () => {
  const { store } = await open();
  await store.noteAccepted(key, LONG_MS);
  await until(async () => ((await store.acceptedAgo(key)) ?? 0) >= 20);
});

test('everything in Redis begins with the prefix', async () => {
  const { store } = await open({ keyPrefix: 'mine' });
  await store.learn(key, learned);
  await store.lead(key, LONG_MS);
  await until(async () => ((await redis.command('KEYS', 'mine:v2:*')) as string[]).length >= 3);
  const names = [
    await redis.command('KEYS', '*'),
    await redis.command('PUBSUB', 'CHANNELS'),
  ].flat() as string[];
  expect(names.filter((name) => !/^(mine|test):v2:/.test(name))).toEqual([]);
});

describe('with keys', () => {
  const keys = storeKeys(new Secret('a'.repeat(64)));

  test('the leader leads for longer when it asks again, and its name counts for ten years', async () => {
    const { store } = await open({ keys });
    const { store: other } = await open({ keys });
    expect(await store.lead(key, 10 * LONG_MS)).toBe(true);
    const at = place('leader', 'test:v2:signed');
    const [, , , life] = String(await redis.command('GET', at)).split('.');
    expect(Number(life)).toBe(10 * 365 * DAY_MS);
    await until(async () => {
      expect(await store.lead(key, 20 * LONG_MS)).toBe(true);
      return Number(await redis.command('PTTL', at)) > 10 * LONG_MS;
    });
    expect(await other.lead(key, LONG_MS)).toBe(false);
  });
});

test('a subscription that breaks alone is made again, and each key that was used counts as changed', async () => {
  const { store, changes } = await open();
  await store.load(key);
  await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await until(() => changes.includes(key));
});

test('a closed store leaves no connection, and announces nothing that it has put off', async () => {
  const server = await startRedis();
  closing.push(() => server.close());
  const [{ store: writer }, { store, changes }] = [await open({}, server), await open({}, server)];
  await store.load(key);
  for (let count = 0; count < 3; count += 1) await writer.learn(key, learned);
  await until(() => changes.length > 0);
  const heard = changes.length;
  await store.close();
  await writer.close();
  const others = async (): Promise<number> =>
    String(await server.command('CLIENT', 'LIST'))
      .split('\n')
      .filter(Boolean).length - 1;
  await until(async () => (await others()) === 0);
  const closed = performance.now();
  await until(() => performance.now() - closed > 100);
  expect(changes).toHaveLength(heard);
});

test('each call that fails is told by its name, and one that has nothing to say is not made', async () => {
  const server = await startRedis();
  closing.push(() => server.close());
  const { store, failures } = await open({ timeoutMs: 100 }, server);
  await server.kill();
  await store.park(key, parked('too old', 1, LONG_MS), LONG_MS);
  const calls = {
    load: () => store.load(key),
    replace: () => store.replace(key, undefined, aged('n'), LONG_MS),
    discard: () => store.discard(key, 'n'),
    park: () => store.park(key, parked('n', 1), LONG_MS),
    take: () => store.take(key),
    recall: () => store.recall(key),
    learn: () => store.learn(key, learned),
    noteAccepted: () => store.noteAccepted(key, LONG_MS),
    acceptedAgo: () => store.acceptedAgo(key),
    lead: () => store.lead(key, LONG_MS),
  };
  for (const call of Object.values(calls)) await expect(call()).rejects.toThrow();
  expect(failures.map(({ operation }) => operation)).toEqual(Object.keys(calls));
});
