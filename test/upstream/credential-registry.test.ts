import { afterEach, expect, jest, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import type { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import type { CredentialSet } from '../../src/credentials/credentials.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import type { UpstreamCredential } from '../../src/upstream/credential.ts';
import { CredentialRegistry } from '../../src/upstream/credential-registry.ts';
import type { Transport, VersionOptions } from '../../src/upstream/credential-version.ts';
import { aged, attemptWith, turns } from '../support/challenges.ts';

const SET: CredentialSet = {
  name: 'main',
  current: { name: 'main', version: '1', username: 'u', password: new Secret('p'), changedAt: undefined },
  next: undefined,
};
function transportOf(change: Partial<VersionOptions> = {}): Transport {
  return {
    address: 'upstream:80',
    exchange: () => Promise.reject(new Error('nothing is sent')),
    metrics: new Metrics({ version: '', node: '' }).deployment('d'),
    options: {
      deployment: 'd',
      origin: 'https://upstream:80',
      egress: { localAddress: undefined, proxy: undefined },
      tls: {
        ca: undefined,
        minVersion: 'TLSv1.2',
        serverName: undefined,
        pins: [],
        clientCertificate: undefined,
      },
      algorithms: ['MD5'],
      noncePolicy: 'auto',
      renewAhead: false,
      neutralTarget: '/',
      timeouts: { response: 1_000 },
      forwardTrace: false,
      ...change,
    },
  };
}

let used: { registry: CredentialRegistry; credential: UpstreamCredential; transport: Transport }[] = [];

/** What ends no more uses of its own accord would keep the registry's timer. */
afterEach(async () => {
  for (const { registry, credential, transport } of used) await registry.release(credential, transport);
  used = [];
  jest.useRealTimers();
});

function registryOn(store: ChallengeStore = new MemoryChallengeStore()) {
  const registry = new CredentialRegistry({
    store,
    clock: { now: () => 0 },
    tracing: undefined,
    onPolicyStep: () => {},
    onBound: () => {},
    onRotation: () => {},
    onHealth: () => {},
    recorder: new FlightRecorder({ clock: { now: () => 0 } }),
  });
  const use = (change: Partial<VersionOptions> = {}, set = SET) => {
    const transport = transportOf(change);
    const credential = registry.use(set, transport, 2);
    used.push({ registry, credential, transport });
    const pool = credential.poolOn(transport) as NoncePool;
    return { credential, transport, pool, release: () => registry.release(credential, transport) };
  };
  return { use };
}

function obtain(pool: NoncePool, nonce: string) {
  const pending = pool.open();
  const { challenge } = aged(nonce);
  const made = pool.offer(pending, { challenge: { ...challenge, qop: ['auth'] }, cookies: [] });
  pool.accept(attemptWith(pool, made), pending, undefined);
  return made;
}

test('upstreams that are the same to the outside use one credential, and with the same settings one pool', () => {
  const { use } = registryOn();
  const first = use();
  expect(use().pool).toBe(first.pool);
  for (const change of [
    { noncePolicy: 'exclusive' as const },
    { algorithms: ['SHA-256' as const] },
    { renewAhead: true },
  ]) {
    const other = use(change);
    expect([other.credential === first.credential, other.pool === first.pool]).toEqual([true, false]);
  }
  expect(use({ origin: 'https://other:80' }).credential).not.toBe(first.credential);
});

test('the last user leaves the nonces to other processes, and the next one begins anew', async () => {
  const store = new MemoryChallengeStore();
  const { use } = registryOn(store);
  const [first, second] = [use(), use()];
  const key = first.credential.versions.inUse.key;
  const nonce = obtain(first.pool, 'n');
  await first.release();
  await first.release();
  expect([second.pool.known, await store.take(key)]).toEqual([nonce, undefined]);
  await second.release();
  expect(second.pool.known).toBeUndefined();
  expect(await store.take(key)).toMatchObject({ challenge: { nonce: 'n' }, count: 1 });
  expect(use().credential).not.toBe(first.credential);
});

test('releases a key in the store when its last pool ends', async () => {
  const store = new MemoryChallengeStore();
  const released: string[] = [];
  store.release = (key: string) => void released.push(key);
  const { use } = registryOn(store);
  const [first, second, other] = [
    use(),
    use({ noncePolicy: 'exclusive' }),
    use({ origin: 'https://other:80' }),
  ];
  await first.release();
  expect(released).toEqual([]);
  await second.release();
  expect(released).toEqual([first.credential.versions.inUse.key]);
  await other.release();
});

test('a pool takes over what the store holds once, however many users it has', async () => {
  const store = new MemoryChallengeStore();
  let loads = 0;
  const load = store.load.bind(store);
  store.load = (key) => {
    loads += 1;
    return load(key);
  };
  const { use } = registryOn(store);
  const [first, second] = [use(), use()];
  await store.replace(first.credential.versions.inUse.key, undefined, aged('n'), 60_000);
  await Promise.all([first, second].map(({ credential }) => credential.versions.inUse.restore()));
  expect(first.pool.known?.challenge.nonce).toBe('n');
  expect(loads).toBe(1);
});

test('a change of the store reaches the pools of its key alone', async () => {
  const place = new MemoryChallengeStore();
  const { use } = registryOn(place.join());
  const [mine, other] = [use(), use({ origin: 'https://other:80' })];
  await place.join().replace(mine.credential.versions.inUse.key, undefined, aged('n'), 60_000);
  await turns();
  expect([mine.pool.known?.challenge.nonce, other.pool.known]).toEqual(['n', undefined]);
});

test('a release waits for the requests over its transport', async () => {
  const { use } = registryOn();
  const { credential, transport, release } = use();
  const ended: string[] = [];
  const testing = credential.test('1', '/', transport).catch(() => ended.push('request'));
  await release();
  ended.push('release');
  await testing;
  expect(ended).toEqual(['request', 'release']);
  await expect(credential.send({ target: '/', client: '' } as never, transport)).rejects.toThrow(
    'no such transport',
  );
});

test('one count gives every nc of a nonce that an origin gives to several credentials, until none is left', async () => {
  const { use } = registryOn();
  const named = (name: string): CredentialSet => ({ ...SET, name });
  const nextOf = ({ pool }: { pool: NoncePool }): number | undefined => {
    const attempt = pool.begin(obtain(pool, 'n'));
    attempt?.end();
    return attempt?.nc;
  };
  const [first, second, other] = [
    use({}, named('a')),
    use({}, named('b')),
    use({ origin: 'https://other:80' }),
  ];
  expect([nextOf(first), nextOf(second), nextOf(other)]).toEqual([2, 4, 2]);
  await first.release();
  expect(nextOf(use({}, named('c')))).toBe(6);
  for (const { registry, credential, transport } of used) await registry.release(credential, transport);
  expect(nextOf(use())).toBe(2);
});

test('one timer looks for news while a credential is in use', async () => {
  jest.useFakeTimers();
  const store = new MemoryChallengeStore();
  const { use } = registryOn(store);
  use();
  expect(jest.getTimerCount()).toBe(1);
  const second = use({ origin: 'https://other:80' });
  expect(jest.getTimerCount()).toBe(1);
  await second.release();
  expect(jest.getTimerCount()).toBe(1);
  for (const { registry, credential, transport } of used) await registry.release(credential, transport);
  expect(jest.getTimerCount()).toBe(0);
});
