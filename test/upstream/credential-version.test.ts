import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import type { Nonce } from '../../src/challenges/nonce.ts';
import type { Question, Reply } from '../../src/upstream/credential-version.ts';
import { answered, challenge, HandshakeScene, lost, stale, unauthorized } from '../handshake/scene.ts';

const question = (): Question => ({ method: 'HEAD', target: '/p', cancellation: new Cancellation() });

const ask = (scene: HandshakeScene): Promise<Reply> => scene.version.ask(question());

test('obtains a challenge, answers it, and leaves the nonce to requests', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1', 'qop="auth"', ['a=b']), answered(200), answered());
  expect(await ask(scene)).toMatchObject({ kind: 'accepted' });
  expect(scene.events).toEqual([...['attempt challenged', 'challenge stale', 'attempt ok']]);
  expect(scene.health.accepted).toBe(true);
  expect(scene.pool.reserve()?.lane.underWay).toBe(0);
  await scene.send();
  expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n1:1', 'GET /x n1:2']);
  expect(scene.messages.at(-1)?.headers.slice(-2)).toEqual(['cookie', 'a=b']);
});

test('takes the place of the nonce that it renews', async () => {
  const scene = new HandshakeScene();
  await scene.warmUp();
  scene.replies.push(challenge('n2'), answered(), answered());
  await scene.version.renew(scene.pool.reserve() as Nonce, question());
  await scene.send();
  expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n2:1', 'GET /x n2:2']);
  expect(scene.events).toEqual(['attempt challenged', 'challenge ahead', 'attempt ok']);
});

test('uses the nonce that the response names', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), answered(200, 'nextnonce="n2"'), answered());
  await ask(scene);
  await scene.send();
  expect(scene.sent.at(-1)).toBe('GET /x n2:1');
});

describe('a nonce without a count', () => {
  test('renews another one without being tried', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', '');
    scene.replies.push(challenge('n2', ''), answered());
    const reply = await scene.version.renew(scene.pool.reserve() as Nonce, question());
    expect([reply.kind, scene.sent]).toEqual(['accepted', ['HEAD /p']]);
    await scene.send();
    expect(scene.sent.at(-1)).toBe('GET /x n2');
  });

  test('is tried to find out about the credential', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1', ''), answered());
    await ask(scene);
    expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n1']);
  });
});

test('a refusal has the number of the attempt, and the challenge that can be answered', async () => {
  const scene = new HandshakeScene();
  scene.health.attempt();
  scene.replies.push(challenge('n1'), challenge('n2'));
  expect(await ask(scene)).toMatchObject({
    kind: 'refused',
    attempt: 2,
    attempts: 1,
    inHand: { status: 401 },
  });
  expect(scene.events).toEqual(['attempt challenged', 'challenge stale', 'attempt refused']);
  // The caller decides what the refusal says, and the nonce serves nobody.
  expect([scene.health.refused, scene.pool.reserve()]).toEqual([false, undefined]);
});

test('a 401 without a challenge refuses, too', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), unauthorized('Basic realm="r"'));
  expect(await ask(scene)).toMatchObject({ kind: 'refused', attempt: 1, attempts: 1 });
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
    expect(await ask(scene)).toMatchObject({ kind: 'unclear' });
    expect([scene.health.accepted, scene.pool.reserve()]).toEqual([false, undefined]);
  });

  test.each([403, 405, 429, 501, 502, 503, 504])('after a %i, but the nonce is good', async (status) => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered(status));
    expect(await ask(scene)).toMatchObject({ kind: 'unclear' });
    expect(scene.health.accepted).toBe(false);
    expect(scene.pool.reserve()?.challenge.nonce).toBe('n1');
    expect(scene.events).toEqual(['attempt challenged', 'challenge stale', 'attempt ok']);
  });

  test('of a stale nonce is told as such', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'));
    await ask(scene);
    expect(scene.events).toEqual(['attempt challenged', 'challenge stale', 'attempt stale']);
  });
});

test('an acceptance of an attempt that a refused one overtook shows nothing', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), (...args) => {
    scene.health.refuse(scene.health.attempt());
    return answered()(...args);
  });
  expect([(await ask(scene)).kind, scene.health.accepted]).toEqual(['unclear', false]);
});

test('a nonce that the refusal names again proves nothing: the next one is answered, too', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), challenge('n1'), challenge('n1'), challenge('n2'), challenge('n3'));
  expect(await ask(scene)).toMatchObject({ kind: 'refused', attempt: 2, attempts: 2 });
  expect(scene.sent).toEqual(['HEAD /p', 'HEAD /p n1:1', 'HEAD /p', 'HEAD /p', 'HEAD /p n2:1']);
});

test('a wrong proof of the upstream shows nothing', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), answered(200, 'rspauth="00"'));
  expect(await ask(scene)).toMatchObject({ kind: 'unclear' });
  expect(scene.health.accepted).toBe(false);
});
