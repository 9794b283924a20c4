import { inspect } from 'node:util';
import { afterEach, expect, test } from '@jest/globals';
import { Secret } from '../../../src/base/secret.ts';
import type { RedisStoreOptions } from '../../../src/challenges/store/redis.ts';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import { aged } from '../../support/challenges.ts';
import { inTime } from '../../support/in-time.ts';
import { type RedisServer, type RedisSetup, startRedis } from '../../support/redis.ts';
import { openWatched, single, type WatchedStore } from '../../support/redis-store.ts';

const certificates = createCertificates();

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

const ACL = [
  'user default off',
  'user gateway on >hunter2 ~test:* &test:* -@all +@read +@write +@scripting +@pubsub +@connection +info +time',
];

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
