import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import {
  type ProbeOptions,
  type ProbeResult,
  probeCredential,
} from '../../src/handshake/credential-probe.ts';
import { NO_BODY } from '../../src/handshake/request.ts';
import { answered, challenge, HandshakeScene, lost, stale, unauthorized } from './scene.ts';

function probe(scene: HandshakeScene, change: Partial<ProbeOptions> = {}): Promise<ProbeResult> {
  return probeCredential(scene.client, {
    call: {
      request: { method: 'HEAD', target: '/p', headers: [], body: NO_BODY, client: '', trace: undefined },
      ...{ exchange: scene.exchange, cancellation: new Cancellation() },
    },
    freshConnection: false,
    replaces: undefined,
    reason: 'ahead',
    triesEachNonce: true,
    ...change,
  });
}

test('obtains a challenge, answers it, and leaves the nonce to requests', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1', 'qop="auth"', ['a=b']), answered(200), answered());
  expect(await probe(scene)).toEqual({ kind: 'accepted' });
  expect(scene.events).toEqual([...['attempt challenged', 'challenge ahead', 'accepted 200', 'attempt ok']]);
  expect(scene.client.health.accepted).toBe(true);
  expect(scene.client.pool.reserve()?.lane.underWay).toBe(0);
  await scene.send();
  expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n1:1', 'GET /x n1:2']);
  expect(scene.requests.at(-1)?.headers.slice(-2)).toEqual(['cookie', 'a=b']);
});

test('takes the place of the nonce that it renews', async () => {
  const scene = new HandshakeScene();
  await scene.warmUp();
  scene.replies.push(challenge('n2'), answered(), answered());
  await probe(scene, { replaces: scene.client.pool.reserve() });
  await scene.send();
  expect(scene.sent.at(-1)).toBe('GET /x n2:2');
});

test('uses the nonce that the response names', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), answered(200, 'nextnonce="n2"'), answered());
  await probe(scene);
  await scene.send();
  expect(scene.sent.at(-1)).toBe('GET /x n2:1');
});

describe('a nonce without a count', () => {
  test('serves without being tried, if that is enough', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1', ''), answered());
    expect(await probe(scene, { triesEachNonce: false })).toEqual({ kind: 'accepted' });
    expect([scene.sent, scene.client.health.accepted]).toEqual([['HEAD /p'], false]);
    await scene.send();
    expect(scene.sent.at(-1)).toBe('GET /x n1');
  });

  test('is tried if the credential is in doubt', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1', ''), answered());
    await probe(scene);
    expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n1']);
  });

  test('with a count is always tried', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered());
    await probe(scene, { triesEachNonce: false });
    expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n1:1']);
  });
});

test('a refusal is told with the number of the attempt', async () => {
  const scene = new HandshakeScene();
  scene.client.health.attempt();
  scene.replies.push(challenge('n1'), challenge('n2'));
  expect(await probe(scene)).toEqual({ kind: 'refused', attempt: 2, attempts: 1 });
  expect(scene.events).toEqual(['attempt challenged', 'challenge ahead', 'attempt refused']);
  // The caller decides what the refusal says, and the nonce serves nobody.
  expect([scene.client.health.refused, scene.client.pool.reserve()]).toEqual([false, undefined]);
});

test('a 401 without a challenge refuses, too', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), unauthorized('Basic realm="r"'));
  expect(await probe(scene)).toEqual({ kind: 'refused', attempt: 1, attempts: 1 });
});

describe('nothing is known', () => {
  test.each([
    ['if the upstream asks for nothing', [answered()]],
    ['without a Digest challenge', [unauthorized('Basic realm="r"')]],
    ['if there is no connection', [lost()]],
    ['if the connection broke at the attempt', [challenge('n1'), lost()]],
    ['if the nonce was stale at once', [challenge('n1'), stale('n2')]],
  ])('%s', async (_, replies) => {
    const scene = new HandshakeScene();
    scene.replies.push(...replies);
    expect(await probe(scene)).toMatchObject({ kind: 'unclear' });
    expect([scene.client.health.accepted, scene.client.pool.reserve()]).toEqual([false, undefined]);
  });

  test.each([403, 405, 429, 501, 502, 503, 504])('after a %i, but the nonce is good', async (status) => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered(status));
    expect(await probe(scene)).toMatchObject({ kind: 'unclear' });
    expect(scene.client.health.accepted).toBe(false);
    expect(scene.client.pool.reserve()?.challenge.nonce).toBe('n1');
    expect(scene.events).toEqual(['attempt challenged', 'challenge ahead', 'attempt ok']);
  });

  test('of a stale nonce is told as such', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'));
    await probe(scene);
    expect(scene.events).toEqual(['attempt challenged', 'challenge ahead', 'attempt stale']);
  });
});

test('an acceptance of an attempt that a refused one overtook is no news', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), (...args) => {
    scene.client.health.refuse(scene.client.health.attempt());
    return answered()(...args);
  });
  expect(await probe(scene)).toEqual({ kind: 'accepted' });
  expect([scene.client.health.accepted, scene.events]).toEqual([
    ...[false, ['attempt challenged', 'challenge ahead', 'attempt ok']],
  ]);
});

test('requests wait for its challenge, and obtain their own if it fails', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(
    () => {
      throw new GatewayError('upstream-timeout', 'late');
    },
    ...[challenge('n1'), answered()],
  );
  const probing = probe(scene).catch((error) => error.code);
  const waiting = scene.send();
  expect([await probing, await waiting]).toEqual(['upstream-timeout', 'answered']);
  expect(scene.sent).toEqual(['HEAD /p', 'GET /x', 'GET /x n1:1']);
});

test('a wrong proof of the upstream fails the probe', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), answered(200, 'rspauth="00"'));
  await expect(probe(scene)).rejects.toMatchObject({ code: 'upstream-proof-invalid' });
  expect(scene.client.health.accepted).toBe(false);
});
