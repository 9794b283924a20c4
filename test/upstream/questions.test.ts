import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { upstreamTooSlow } from '../../src/handshake/errors.ts';
import {
  answered,
  challenge,
  credential,
  HandshakeScene,
  held,
  lost,
  type Reply,
  type SceneOptions,
  stale,
} from '../handshake/scene.ts';

afterEach(() => {
  jest.useRealTimers();
});

const CONFIGURED = { options: { renewAhead: { method: 'OPTIONS', path: '/renew' } } };

const ask = ({ credential: asked, transport }: HandshakeScene): Promise<string> =>
  asked.test('7', '/of-client?q=1', transport);

/** A request of the gateway's own ends when it is cancelled. */
const silent: Reply = ({ request: { cancellation } }) =>
  new Promise((resolve, reject) => {
    cancellation.add({
      cancel: () => {
        const { reason } = cancellation;
        if (reason === undefined) reject(new Error('cancelled without a reason'));
        else resolve({ kind: 'lost', error: reason, broke: false, sent: true, reused: false });
      },
    });
  });

/** Whether the upstream accepts a version: the requests, their replies, and what is found. */
const probes: [what: string, isKnown: boolean, SceneOptions, [sent: string, Reply][], result: string][] = [
  [
    'HEAD at the neutral target shows it',
    false,
    {},
    [
      ['HEAD /neutral', challenge('n2')],
      ['HEAD /neutral n2:1', answered()],
    ],
    'accepted',
  ],
  [
    'HEAD shows nothing: GET on a new connection',
    false,
    {},
    [
      ['HEAD /neutral', lost()],
      ['GET /neutral fresh', challenge('n2')],
      ['GET /neutral n2:1', answered()],
    ],
    'accepted',
  ],
  [
    'neither shows anything, though authentication is wanted: the path of the client is not asked for',
    false,
    {},
    [
      ['HEAD /neutral', lost()],
      ['GET /neutral fresh', challenge('n2')],
      ['GET /neutral n2:1', answered(403)],
    ],
    'unclear',
  ],
  [
    'the neutral target wants no authentication: the path of the client shows it',
    false,
    {},
    [
      ['HEAD /neutral', answered()],
      ['GET /neutral fresh', answered()],
      ['GET /of-client fresh', challenge('n2')],
      ['GET /of-client n2:1', answered()],
    ],
    'accepted',
  ],
  [
    'where a request has succeeded, no other target is asked for',
    true,
    {},
    [
      ['HEAD /x fresh', answered()],
      ['GET /x fresh', answered()],
    ],
    'unclear',
  ],
  [
    'with a configured request, nothing else is sent',
    false,
    CONFIGURED,
    [
      ['OPTIONS /renew', lost()],
      ['OPTIONS /renew fresh', challenge('n2')],
      ['OPTIONS /renew n2:1', answered()],
    ],
    'accepted',
  ],
];

test.each(probes)('%s', async (_what, isKnown, options, exchanges, result) => {
  const scene = new HandshakeScene(options);
  if (isKnown) await scene.warmUp();
  scene.replies.push(...exchanges.map(([, reply]) => reply));
  expect(await ask(scene)).toBe(result);
  expect(scene.sent).toEqual(exchanges.map(([sent]) => sent));
});

test.each([
  ['a target that takes a second is not asked while a quicker one is known', ['/quick', '/slow'], '/quick'],
  ['a quicker one takes its place', ['/slow', '/quick'], '/quick'],
  ['the last one, if all are slow', ['/slow', '/slow/2'], '/slow/2'],
])('%s', async (_what, targets, asked) => {
  const scene = new HandshakeScene();
  for (const target of targets) {
    const reply: Reply = (message) => {
      if (target.startsWith('/slow')) scene.clock.at += 1_000;
      return answered()(message);
    };
    scene.version.dropIdle();
    scene.replies.push(challenge(target), reply);
    expect(await scene.send({ target })).toBe('answered');
  }
  scene.sent.length = 0;
  scene.replies.push(challenge('n2'), answered());
  expect(await ask(scene)).toBe('accepted');
  expect(scene.sent).toEqual([`HEAD ${asked} fresh`, `HEAD ${asked} n2:1`]);
});

test('only refusals count against what a minute may have', async () => {
  const scene = new HandshakeScene({ attemptsWhenRefused: 1 });
  for (const result of ['accepted', 'accepted', 'refused', 'spent']) {
    const reply = result === 'refused' ? challenge('n2') : answered();
    if (result !== 'spent') scene.replies.push(challenge('n1'), reply);
    // A version in use that is refused once is asked about again, for which there is no reply.
    if (result === 'refused')
      scene.credential.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
    expect(await ask(scene)).toBe(result);
  }
});

describe('the deadline of a question', () => {
  test('is twice the time of a response', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate'] });
    const scene = new HandshakeScene({ options: { timeouts: { response: 20 } } });
    scene.replies.push(silent, lost());
    const result = ask(scene);
    await turn();
    jest.advanceTimersByTime(39);
    await turn();
    expect(scene.sent).toEqual(['HEAD /neutral']);
    jest.advanceTimersByTime(1);
    expect(await result).toBe('unclear');
  });

  test('is as long as a timer can be, where a response may take weeks', async () => {
    const scene = new HandshakeScene({ options: { timeouts: { response: 24 * 86_400_000 } } });
    const cancelled = jest.fn();
    const waiting: Reply = async ({ request: { cancellation } }) => {
      cancellation.add({ cancel: cancelled });
      await sleep(20);
      return { kind: 'lost', error: upstreamTooSlow(1), broke: false, sent: true, reused: false };
    };
    scene.replies.push(waiting, lost());
    expect(await ask(scene)).toBe('unclear');
    expect(cancelled).not.toHaveBeenCalled();
  });

  test('leaves no timer when the reply has come', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate'] });
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered());
    expect([await ask(scene), jest.getTimerCount()]).toEqual(['accepted', 0]);
  });
});

describe('a new version is tried', () => {
  test.each<[string, SceneOptions, string, [string, Reply][]]>([
    [
      'with HEAD, and with GET where the upstream does not support it',
      {},
      '/x',
      [
        ['HEAD /x', challenge('n2')],
        ['HEAD /x n2:1 new', answered(405)],
        ['GET /x', challenge('n3')],
        ['GET /x n3:1 new', answered()],
      ],
    ],
    [
      'with the configured request alone',
      CONFIGURED,
      '/x',
      [
        ['OPTIONS /renew', challenge('n2')],
        ['OPTIONS /renew n2:1 new', answered()],
      ],
    ],
  ])('%s', async (_what, options, target, exchanges) => {
    const scene = new HandshakeScene(options);
    await scene.warmUp();
    scene.replies.push(...exchanges.map(([, reply]) => reply));
    const current = { ...credential, version: '8', username: 'new' };
    scene.credential.offer({ name: 'main', current, next: undefined });
    for (let turns = 0; turns < 100 && scene.version.version !== '8'; turns += 1) await turn();
    expect([scene.version.version, scene.sent]).toEqual(['8', exchanges.map(([sent]) => sent)]);
    scene.replies.push(answered());
    expect(await scene.send({ target })).toBe('answered');
  });
});

describe('a nonce that grows old is renewed', () => {
  const LIFE_MS = 10_000;

  /** A nonce is refused at this age, so that its successor grows old; then a request uses that. */
  async function age(options: SceneOptions['options'], method = 'GET'): Promise<HandshakeScene> {
    const scene = new HandshakeScene({ policy: 'exclusive', ...(options && { options }) });
    scene.replies.push(challenge('n1'), answered());
    await scene.send({ method, target: '/x?q=1' });
    scene.clock.at += LIFE_MS;
    scene.replies.push(stale('n2'), answered());
    await scene.send({ method, target: '/x?q=2' });
    scene.clock.at += 0.8 * LIFE_MS;
    scene.sent.length = 0;
    scene.replies.push(answered(), challenge('n3'), answered());
    expect(await scene.send({ method, target: '/x?q=3' })).toBe('answered');
    for (let turns = 0; turns < 20; turns += 1) await turn();
    expect(scene.sent.shift()).toBe(`${method} /x?q=3 n2:2`);
    return scene;
  }

  test('again, and its refusal makes the gateway ask about the credential', async () => {
    const scene = await age({ renewAhead: true });
    scene.clock.at += 0.8 * LIFE_MS;
    scene.sent.length = 0;
    scene.replies.push(answered(), challenge('n4'), challenge('n5'), challenge('n6'), challenge('n7'));
    expect(await scene.send()).toBe('answered');
    for (let turns = 0; turns < 20; turns += 1) await turn();
    const asked = ['HEAD /x fresh', 'HEAD /x n6:1'];
    expect(scene.sent).toEqual(['GET /x n3:2', 'HEAD /x', 'HEAD /x n4:1', ...asked]);
    expect(scene.health.refused).toBe(true);
  });

  test('by one request at a time', async () => {
    const scene = new HandshakeScene({ policy: 'exclusive', options: { renewAhead: true } });
    const both = async (...replies: Reply[]): Promise<void> => {
      scene.replies.push(...replies);
      expect(await Promise.all([scene.send(), scene.send()])).toEqual(['answered', 'answered']);
      for (let turns = 0; turns < 20; turns += 1) await turn();
    };
    await scene.warmUp();
    scene.clock.at += LIFE_MS;
    scene.replies.push(stale('n2'), answered());
    await scene.send();
    await both(answered(), challenge('n3'), answered());
    scene.clock.at += 0.8 * LIFE_MS;
    scene.sent.length = 0;
    const renewing = held(challenge('n4'));
    await both(answered(), answered(), renewing.reply);
    expect(scene.sent).toEqual(['GET /x n3:2', 'GET /x n2:3', 'HEAD /x']);
    scene.replies.push(answered());
    renewing.release();
  });

  test('not by a request that shows nothing of a credential which is unknown', async () => {
    const scene = new HandshakeScene({ policy: 'exclusive', options: { renewAhead: true } });
    await scene.warmUp();
    scene.clock.at += LIFE_MS;
    scene.replies.push(stale('n2'), answered());
    await scene.send();
    scene.clock.at += 0.8 * LIFE_MS;
    scene.sent.length = 0;
    scene.health.reset();
    scene.replies.push(answered(503));
    await scene.send();
    for (let turns = 0; turns < 20; turns += 1) await turn();
    expect(scene.sent).toEqual(['GET /x n2:2']);
  });

  test.each<[string, SceneOptions['options'], string, string[]]>([
    ['with HEAD of the last path that succeeded', { renewAhead: true }, 'GET', ['HEAD /x', 'HEAD /x n3:1']],
    ['with the configured request', CONFIGURED.options, 'GET', ['OPTIONS /renew', 'OPTIONS /renew n3:1']],
    ['not while no GET has succeeded', { renewAhead: true }, 'DELETE', []],
    ['not unless it is configured', {}, 'GET', []],
  ])('%s', async (_what, options, method, sent) => {
    const scene = await age(options, method);
    expect(scene.sent).toEqual(sent);
  });
});
