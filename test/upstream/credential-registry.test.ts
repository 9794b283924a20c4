import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import type { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import type { CredentialSet } from '../../src/credentials/credentials.ts';
import type { Exchange } from '../../src/handshake/exchange.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import type { UpstreamCredential } from '../../src/upstream/credential.ts';
import { CredentialRegistry } from '../../src/upstream/credential-registry.ts';
import type { Transport, VersionOptions } from '../../src/upstream/credential-version.ts';
import { challenge } from '../handshake/scene.ts';
import { aged, attemptWith, turns } from '../support/challenges.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

const SET: CredentialSet = {
  name: 'main',
  current: { name: 'main', version: '1', username: 'u', password: new Secret('p'), changedAt: undefined },
  next: undefined,
};
const nothingSent: Exchange = () => Promise.reject(new Error('nothing is sent'));

function transportOf(change: Partial<VersionOptions> = {}, exchange = nothingSent): Transport {
  return {
    address: 'upstream:80',
    exchange,
    metrics: new Metrics({ version: '', node: '' }).deployment('d'),
    options: {
      deployment: 'd',
      origin: 'https://upstream:80',
      egress: { localAddress: undefined, proxy: undefined },
      tls: USUAL_TLS,
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
  const use = (change: Partial<VersionOptions> = {}, set = SET, exchange = nothingSent, perMinute = 2) => {
    const transport = transportOf(change, exchange);
    const credential = registry.use(set, transport, perMinute);
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

describe('a transport that is used again while a request from before its release is under way', () => {
  const scene = () => {
    const { use } = registryOn();
    const held = Promise.withResolvers<never>();
    const { transport, credential, release } = use({}, SET, () => held.promise);
    const { registry } = used[0] as (typeof used)[number];
    const under = credential.test('1', '/', transport);
    const end = async (): Promise<void> => {
      held.reject(new GatewayError('upstream-unreachable', 'gone'));
      expect(await under).toBe('unclear');
    };
    const useAgain = () => registry.use(SET, transport, 2);
    return { transport, credential, release, end, useAgain };
  };

  test('stays attached', async () => {
    const { transport, credential, release, end, useAgain } = scene();
    const released = release();
    expect(useAgain()).toBe(credential);
    await end();
    await released;
    expect(credential.poolOn(transport)).toBeDefined();
    expect(credential.versions.inUse.on(transport)).toBeDefined();
  });

  test('and released again, is detached when that one is over', async () => {
    const { transport, credential, release, end, useAgain } = scene();
    const released = [release()];
    useAgain();
    released.push(release());
    await turns();
    expect(credential.poolOn(transport)).toBeDefined();
    await end();
    await Promise.all(released);
    expect(credential.poolOn(transport)).toBeUndefined();
    expect(useAgain()).not.toBe(credential);
  });
});

/** The next nc of a nonce that the upstream gives again. */
function nextOf({ pool }: { readonly pool: NoncePool }): number | undefined {
  const attempt = pool.begin(obtain(pool, 'n'));
  attempt?.nonce.endAttempt();
  return attempt?.nc;
}

test('one count gives every nc of a nonce that an origin gives to several credentials, until none is left', async () => {
  const { use } = registryOn();
  const named = (name: string): CredentialSet => ({ ...SET, name });
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

test('a pool that another one replaces leaves no nonce, so that its count goes on when it is issued again', async () => {
  const store = new MemoryChallengeStore();
  const { use } = registryOn(store);
  const first = use();
  const attempt = attemptWith(first.pool, obtain(first.pool, 'n'));
  const second = use({ noncePolicy: 'exclusive' });
  await first.release();
  // One that was under way then.
  first.pool.accept(attempt, undefined, undefined);
  await turns();
  expect(await store.take(first.credential.versions.inUse.key)).toBeUndefined();
  expect(nextOf(second)).toBe(4);
});

test('what the last user of an origin leaves is forgotten, while other origins are in use', async () => {
  const { use } = registryOn();
  const [first, second] = [use(), use({ origin: 'https://other:80' })];
  expect([nextOf(first), nextOf(second)]).toEqual([2, 2]);
  await second.release();
  expect(use().credential).toBe(first.credential);
  expect(nextOf(use({ origin: 'https://other:80' }))).toBe(2);
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

test.each<[string, Partial<VersionOptions>]>([
  ['another local address', { egress: { localAddress: '127.0.0.2', proxy: undefined } }],
  ['other pins', { tls: { ...transportOf().options.tls, pins: ['pin'] } }],
  ['another deployment', { deployment: 'e' }],
])('what is known with one local address and trust says nothing of %s', (_what, change) => {
  const { use } = registryOn();
  expect(use(change).credential).not.toBe(use().credential);
});

describe('the refused attempts of a minute', () => {
  /** An upstream that refuses everything, with another nonce each time. */
  const refusing = (): Exchange => {
    let nonce = 0;
    return async (request) => {
      nonce += 1;
      return challenge(`n${nonce}`)(request);
    };
  };

  const ask = ({ credential, transport }: Pick<(typeof used)[number], 'credential' | 'transport'>) =>
    credential.test('1', '/', transport);

  test('are those of a deployment, however its upstream is reached', async () => {
    const { use } = registryOn();
    const first = use({}, SET, refusing());
    const [same, deployment, name] = [
      use({ origin: 'https://other:80' }, SET, refusing()),
      use({ deployment: 'e' }, SET, refusing()),
      use({}, { ...SET, name: 'other' }, refusing()),
    ];
    expect(await ask(first)).toBe('refused');
    // The work that the first one begins is awaited, too.
    await first.credential.versions.transports.get(first.transport)?.idle();
    await turns();
    expect(await ask(same)).toBe('spent');
    expect([await ask(deployment), await ask(name)]).toEqual(['refused', 'refused']);
  });

  test('are as many as the last configuration says, and forgotten with the last user', async () => {
    const { use } = registryOn();
    const first = use({}, SET, refusing(), 1);
    expect([await ask(first), await ask(first)]).toEqual(['refused', 'spent']);
    await turns();
    const second = use({ origin: 'https://other:80' }, SET, refusing(), 9);
    expect(await ask(second)).toBe('refused');
    await turns();
    await first.release();
    expect(await ask(use({ origin: 'https://third:80' }, SET, refusing(), 1))).toBe('spent');
    for (const { registry, credential, transport } of used) await registry.release(credential, transport);
    expect(await ask(use({}, SET, refusing(), 1))).toBe('refused');
  });
});

test('credentials that may learn from other processes take turns, 50 each second', async () => {
  jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate'] });
  const store = new MemoryChallengeStore();
  const asked: string[] = [];
  store.acceptedAgo = async (key: string) => {
    asked.push(key);
    return undefined;
  };
  const { use } = registryOn(store);
  const named = (name: string): CredentialSet => ({ ...SET, name });
  const credentials = Array.from({ length: 51 }, (_, index) => use({}, named(`${index}`)).credential);
  use({}, named('accepted'));
  for (const { versions } of credentials)
    versions.refuse(versions.inUse, versions.inUse.health.attempt(), 'verdict');
  const looked = async (): Promise<string[]> => {
    jest.advanceTimersByTime(1_000);
    await turns();
    return asked.splice(0);
  };
  const [first, second] = [await looked(), await looked()];
  expect([first.length, second.length, new Set([...first, ...second]).size]).toEqual([50, 50, 51]);
});
