import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { Message } from '../../src/handshake/exchange.ts';
import type { Question, Reply, Transport } from '../../src/upstream/credential-version.ts';
import {
  answered,
  challenge,
  HandshakeScene,
  lost,
  type Reply as SceneReply,
  stale,
  unauthorized,
} from '../handshake/scene.ts';
import { attemptWith, obtain, parked } from '../support/challenges.ts';

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
  expect(scene.messages.map(({ follows }) => follows?.status)).toEqual([undefined, 401, undefined]);
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
    inHand: { response: { status: 401 }, method: 'HEAD', target: '/p' },
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

describe('a nonce that the refusal names again', () => {
  test.each<[string, SceneReply[], object]>([
    ['and then no response', [lost()], { kind: 'unclear' }],
    ['and then no request for authentication', [answered()], { kind: 'unclear', isUnprotected: true }],
    ['and then a stale one', [challenge('n2'), stale('n3')], { kind: 'unclear' }],
    ['and then one that is accepted', [challenge('n2'), answered()], { kind: 'accepted', status: 200 }],
    [
      'and then a challenge that may not be answered',
      [unauthorized('Basic realm="r"'), unauthorized('Basic realm="r"')],
      { kind: 'unclear' },
    ],
  ])('%s', async (_what, replies, expected) => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n1'), ...replies);
    expect(await ask(scene)).toMatchObject(expected);
  });
});

describe('a renewal', () => {
  test.each<[string, SceneReply]>([
    ['without a response', lost()],
    ['without a request for authentication', answered()],
    ['without a challenge that may be answered', unauthorized('Basic realm="r"')],
  ])('%s shows nothing, and leaves the nonce as it is', async (_what, reply) => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    const nonce = scene.pool.reserve() as Nonce;
    scene.replies.push(reply, answered());
    expect(await scene.version.renew(nonce, question())).toMatchObject({ kind: 'unclear' });
    await scene.send();
    expect(scene.sent).toEqual(['HEAD /p', 'GET /x n1:2']);
  });
});

test('a renewal reads its response to the end, and counts only what asks for authentication as a challenge', async () => {
  const scene = new HandshakeScene();
  await scene.warmUp();
  scene.replies.push(answered(), unauthorized('Basic realm="r"'));
  const nonce = scene.pool.reserve() as Nonce;
  await scene.version.renew(nonce, question());
  await scene.version.renew(nonce, question());
  expect(scene.events).toEqual(['attempt ok', 'attempt challenged']);
});

test('a defect is no reply', async () => {
  const scene = new HandshakeScene();
  await scene.warmUp();
  const nonce = scene.pool.reserve() as Nonce;
  const defect = (): never => {
    throw new TypeError('a defect');
  };
  scene.replies.push(defect, defect);
  await expect(ask(scene)).rejects.toThrow('a defect');
  await expect(scene.version.renew(nonce, question())).rejects.toThrow('a defect');
});

describe('a version without connections', () => {
  test('can be asked nothing', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    const nonce = scene.pool.reserve() as Nonce;
    await scene.version.detach(scene.transport);
    // Can be called again.
    await scene.version.detach(scene.transport);
    expect([await ask(scene), await scene.version.renew(nonce, question())]).toMatchObject([
      { kind: 'unclear' },
      { kind: 'unclear' },
    ]);
    expect(scene.sent).toEqual([]);
    expect(() => scene.account).toThrow('version 7 has no such transport');
  });

  test('is asked over the connections that came last, until they go', async () => {
    const scene = new HandshakeScene();
    const asked: string[] = [];
    const other = {
      ...scene.transport,
      exchange: async (request: Message) => {
        asked.push(request.method);
        return scene.exchange(request);
      },
    };
    scene.credential.versions.attach(other);
    scene.replies.push(challenge('n1'), answered(), challenge('n2'), answered());
    await ask(scene);
    expect(asked).toEqual(['HEAD', 'HEAD']);
    await scene.credential.versions.detach(other);
    await ask(scene);
    expect([asked.length, scene.sent.length]).toEqual([2, 4]);
  });

  test('leaves its nonces to other processes with the last', async () => {
    const store = new MemoryChallengeStore();
    const scene = new HandshakeScene({ store });
    await scene.warmUp();
    const options = { ...scene.transport.options, noncePolicy: 'exclusive' as const };
    const others = [1, 2].map(() => ({ ...scene.transport, options }));
    const left: unknown[] = [];
    for (const other of others) scene.credential.versions.attach(other);
    obtain(scene.version.on(others[0] as Transport).pool, parked('n9', 0));
    // One that is not attached, then one with other settings, then two with the same.
    for (const each of [{ ...scene.transport }, scene.transport, ...others]) {
      await scene.version.detach(each);
      left.push((await store.take(scene.version.key))?.challenge.nonce);
    }
    expect(left).toEqual([undefined, undefined, undefined, 'n9']);
  });

  test('takes no nonces from connections with other settings that come meanwhile', async () => {
    const scene = new HandshakeScene({ store: new MemoryChallengeStore() });
    await scene.warmUp();
    const { options } = scene.transport;
    const other = { ...scene.transport, options: { ...options, noncePolicy: 'exclusive' as const } };
    const later = { ...other, options: { ...other.options, algorithms: ['MD5' as const] } };
    scene.credential.versions.attach(other);
    const left = scene.version.detach(other);
    scene.credential.versions.attach(later);
    await left;
    const { pool } = scene.version.on(later);
    obtain(pool, parked('n9', 0));
    expect(pool.reserve()?.challenge.nonce).toBe('n9');
  });
});

test('a question is the gateway’s own: no client waits for it, and it can be cancelled', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), answered());
  const asked = question();
  await scene.version.ask(asked);
  for (const { request, body } of scene.messages) {
    expect([request.client, body]).toEqual(['', null]);
    expect(request.cancellation).toBe(asked.cancellation);
  }
});

test('idle nonces leave when the upstream has refused several others', () => {
  const { pool, version } = new HandshakeScene({ policy: 'exclusive' });
  for (const nonce of ['n1', 'n2', 'n3']) obtain(pool, parked(nonce, 0));
  for (const _ of [1, 2]) pool.refuse(attemptWith(pool, pool.reserve() as Nonce), false);
  version.dropIdle();
  expect(pool.reserve()).toBeUndefined();
});

test('each nonce has a cnonce of 128 random bits', async () => {
  const scene = new HandshakeScene({ policy: 'single-use' });
  scene.replies.push(challenge('n1'), answered(), challenge('n2'), answered());
  await scene.send();
  await scene.send();
  const cnonces = scene.messages.flatMap(
    ({ headers }) => /cnonce="([0-9a-f]{32})"/.exec(headers.join())?.[1] ?? [],
  );
  expect(new Set(cnonces).size).toBe(2);
});

test('a step of the nonce policy is reported', async () => {
  const scene = new HandshakeScene();
  await scene.warmUp();
  await scene.refuseOvertaken();
  expect(scene.events).toContain('policy exclusive');
});
