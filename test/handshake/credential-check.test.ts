import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import { until } from '../support/until.ts';
import {
  answered,
  challenge,
  delayed,
  FIRST,
  HandshakeScene,
  held,
  lost,
  type Reply,
  type SceneOptions,
  stale,
} from './scene.ts';

const OWN = { ...FIRST, ownNonce: true };
const SLOW_MS = 5_000;

/** A known nonce, and nothing known of the credential. */
async function unknown(options?: SceneOptions, parameters?: string): Promise<HandshakeScene> {
  const scene = new HandshakeScene(options);
  await scene.warmUp('n1', parameters);
  scene.client.health.reset();
  return scene;
}

/** A nonce that two requests have used. */
async function used(parameters?: string): Promise<HandshakeScene> {
  const scene = new HandshakeScene();
  await scene.warmUp('n1', parameters);
  scene.replies.push(answered());
  await scene.send();
  for (const list of [scene.sent, scene.events]) list.length = 0;
  return scene;
}

describe('a credential whose first nonce is refused', () => {
  const isFound = (event: string) => /confirm|refused$/.test(event);

  test('is found out about by the gateway itself, and serves', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n2'), challenge('n3'), answered(), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n1:1', 'HEAD /x', 'HEAD /x n3:1', 'GET /x n2:1']);
    expect(scene.events.filter(isFound)).toEqual(['attempt refused', 'unconfirmed', 'confirm /x 1']);
  });

  test('is refused when that is refused, too', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n2'), challenge('n3'), challenge('n4'));
    expect(await scene.send()).toBe('refused');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n1:1', 'HEAD /x', 'HEAD /x n3:1']);
    expect(scene.client.health.refused).toBe(true);
  });

  test('is refused at once if another version is in use', async () => {
    const scene = new HandshakeScene();
    scene.isInUse = false;
    scene.replies.push(challenge('n1'), challenge('n2'));
    expect(await scene.send()).toBe('refused');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n1:1']);
    expect(scene.events.filter(isFound)).toEqual(['attempt refused', 'refused']);
  });

  test('twice, and was found good in between: the upstream refuses the target', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n2'));
    scene.replies.push(challenge('n3'), answered(), challenge('n4'));
    expect(await scene.send()).toBe('upstream-target-refused');
    expect(scene.events.filter(isFound)).toEqual([
      ...['attempt refused', 'unconfirmed', 'confirm /x 1', 'attempt refused'],
    ]);
  });

  test('by a 401 that names it once more: that proves nothing, and costs the request no attempt', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n1'));
    scene.replies.push(challenge('n2'), answered(), challenge('n2'), challenge('n2'));
    scene.replies.push(challenge('n3'), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual([
      ...['GET /x', 'GET /x n1:1', 'HEAD /x', 'HEAD /x n2:1'],
      ...['GET /x', 'GET /x n2:2', 'GET /x', 'GET /x n3:1'],
    ]);
    expect(scene.events.filter(isFound)).toEqual(['attempt refused', 'confirm /x', 'attempt refused']);
  });
});

describe('an unknown credential', () => {
  test('is tested by one request while the others wait', async () => {
    const scene = await unknown();
    const first = held(answered());
    scene.replies.push(first.reply, answered(), answered());
    const outcomes = ['/a', '/b', '/c'].map((target) => scene.send({ target }));
    await first.came;
    expect([scene.sent, scene.client.flights.busy]).toEqual([['GET /a n1:2'], true]);
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered', 'answered']);
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3', 'GET /c n1:4']);
    expect(scene.client.flights.busy).toBe(false);
  });

  test('that was found good is tested by nobody who waited', async () => {
    const scene = await unknown();
    const [first, second] = [held(answered()), held(answered())];
    scene.replies.push(first.reply, second.reply, answered());
    const [testing, slow, quick] = ['/a', '/b', '/c'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    expect(await quick).toBe('answered');
    second.release();
    expect(await Promise.all([testing, slow])).toEqual(['answered', 'answered']);
  });

  test('keeps no request from the nonce that it would use, where the upstream keeps state by opaque', async () => {
    const scene = await unknown({}, 'qop="auth", opaque="o"');
    const first = held(answered());
    scene.replies.push(first.reply, answered());
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    await Promise.all(outcomes);
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3']);
  });

  test('leaves idle nonces to others if another version can take its place', async () => {
    const scene = await unknown({ policy: 'exclusive' });
    scene.hasAlternatives = true;
    scene.replies.push(challenge('n2'), answered());
    await scene.send();
    const { pool } = scene.client;
    const idle = [pool.reserve(), pool.reserve()].map((nonce) => nonce?.challenge.nonce);
    expect(idle.sort()).toEqual(['n1', 'n2']);
  });

  test('that a response says nothing of: a request with a nonce of its own goes on without a test', async () => {
    const scene = await unknown();
    const [first, second] = [held(answered(503)), held(answered(503))];
    scene.replies.push(first.reply, challenge('n2'), second.reply);
    const testing = scene.send({ target: '/a' });
    await first.came;
    const waiting = scene.send({ target: '/b' }, { turn: OWN });
    await turn();
    first.release();
    await second.came;
    expect(scene.client.flights.busy).toBe(false);
    second.release();
    expect(await Promise.all([testing, waiting])).toEqual(['answered', 'answered']);
  });

  test('that is refused is refused for all who waited', async () => {
    const scene = await unknown();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, challenge('n3'), challenge('n4'), challenge('n5'));
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['refused', 'refused']);
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /a n2:1', 'HEAD /a', 'HEAD /a n4:1']);
  });

  test('is tested by the next request if the response to the first says nothing', async () => {
    const scene = await unknown();
    const first = held(answered(503));
    scene.replies.push(first.reply, answered());
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
    expect(scene.client.health.accepted).toBe(true);
  });

  test('is tested by the next request if the first fails', async () => {
    const scene = await unknown();
    const first = held(lost({ broke: false }));
    scene.replies.push(first.reply, challenge('n2'), answered());
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['upstream-unreachable', 'answered']);
  });

  test('keeps nobody waiting for longer than the patience, nor for a test that takes longer already', async () => {
    const scene = await unknown({ options: { patienceMs: 20 } });
    const first = held(answered());
    const second = held(answered());
    scene.replies.push(first.reply, second.reply, answered());
    const testing = scene.send({ target: '/a' });
    await first.came;
    const waiting = scene.send({ target: '/b' });
    await second.came;
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3']);
    await until(() => scene.client.flights.age > 20);
    const late = scene.send({ target: '/c' });
    await turn();
    expect(scene.sent.at(-1)).toBe('GET /c n1:4');
    first.release();
    second.release();
    expect(await Promise.all([testing, waiting, late])).toEqual(['answered', 'answered', 'answered']);
  });

  test('that an attempt from before shows to be good keeps nobody waiting for the test', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    const [earlier, testing] = [held(answered()), held(answered())];
    scene.replies.push(earlier.reply, testing.reply, answered());
    const first = scene.send({ target: '/c' });
    await earlier.came;
    scene.client.health.reset();
    const second = scene.send({ target: '/a' });
    await testing.came;
    const waiting = scene.send({ target: '/b' });
    await turn();
    earlier.release();
    expect(await Promise.all([first, waiting])).toEqual(['answered', 'answered']);
    expect(scene.sent).toEqual(['GET /c n1:2', 'GET /a n1:3', 'GET /b n1:4']);
    testing.release();
    expect(await second).toBe('answered');
  });

  test('ends the wait of a request that is cancelled, with the reason', async () => {
    const scene = await unknown();
    const first = held(answered());
    const cancellation = new Cancellation();
    scene.replies.push(first.reply);
    const testing = scene.send();
    await first.came;
    const waiting = scene.send({}, { cancellation });
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await waiting).toBe('client-closed');
    first.release();
    await testing;
    expect(scene.sent).toHaveLength(1);
  });

  test('of which another version can take the place is not tested with a nonce of others', async () => {
    const scene = new HandshakeScene();
    scene.hasAlternatives = true;
    const first = held(answered(503));
    scene.replies.push(challenge('n1'), first.reply, challenge('n2'), answered());
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    await Promise.all(outcomes);
    expect(scene.sent).toEqual(['GET /a', 'GET /a n1:1', 'GET /b', 'GET /b n2:1']);
  });
});

describe('a nonce that a request obtained for itself before it waited', () => {
  /**
   * Sends request a, which tests the credential, and request b, which waits with a nonce of its own until a is accepted
   * `ms` later. Resolves to what b sent.
   */
  async function afterWait(
    parameters: string,
    ms: number,
    change: Partial<AttemptBudget> = {},
  ): Promise<string[]> {
    const scene = await unknown();
    const first = held(answered());
    scene.replies.push(first.reply, challenge('n2', parameters));
    const testing = scene.send({ target: '/a' });
    await first.came;
    const budget = Object.assign(new AttemptBudget(), change);
    const waiting = scene.send({ target: '/b' }, { turn: OWN, budget });
    await turn();
    scene.clock.at += ms;
    scene.replies.push((request) => {
      const isAnswer = request.headers.includes('authorization');
      if (!isAnswer) scene.replies.push(answered());
      return (isAnswer ? answered() : challenge('n3'))(request);
    });
    first.release();
    expect(await Promise.all([testing, waiting])).toEqual(['answered', 'answered']);
    expect(scene.sent.slice(0, 2)).toEqual(['GET /a n1:2', 'GET /b']);
    return scene.sent.slice(2);
  }

  test('is used if it is fresh', async () => {
    expect(await afterWait('qop="auth"', 99)).toEqual(['GET /b n2:1']);
  });

  test('is replaced if the wait was long', async () => {
    expect(await afterWait('qop="auth"', 100)).toEqual(['GET /b', 'GET /b n3:1']);
  });

  test('is replaced if the upstream keeps state by opaque', async () => {
    expect(await afterWait('qop="auth", opaque="o"', 0)).toEqual(['GET /b', 'GET /b n3:1']);
  });

  test('is used all the same if the request may not ask again', async () => {
    expect(await afterWait('qop="auth"', 100, { asked: 3 })).toEqual(['GET /b n2:1']);
  });
});

describe('a nonce that is refused and not called stale', () => {
  test('after one use, also after long: the same request finds out with its second attempt', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(delayed(scene, SLOW_MS, challenge('n2')), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x n2:1']);
  });

  test('that the request obtained for itself, of an accepted credential: the gateway finds out', async () => {
    const scene = await used();
    scene.replies.push(challenge('n2'), challenge('n3'), challenge('n4'), answered(), answered());
    expect(await scene.send({}, { turn: OWN })).toBe('answered');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1', 'HEAD /x', 'HEAD /x n4:1', 'GET /x n3:1']);
    expect(scene.events).toContain('unconfirmed');
  });

  test('of two requests at once: the gateway finds out once', async () => {
    const scene = await used();
    const [first, second] = [held(challenge('n2')), held(challenge('n3'))];
    scene.replies.push(first.reply, second.reply, challenge('n4'), answered(), answered(), answered());
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    first.release();
    second.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
    expect(scene.events.filter((event) => /^confirm/.test(event))).toHaveLength(1);
  });

  test('while the gateway finds out: requests with another nonce wait for it', async () => {
    const scene = await used();
    scene.hasAlternatives = true;
    const [first, probed] = [held(challenge('n2')), held(answered())];
    scene.replies.push(first.reply, stale('n5'), answered(), challenge('n3'), probed.reply);
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    first.release();
    await probed.came;
    scene.replies.push(answered(), answered());
    const waiting = scene.send({ target: '/c' });
    await turn();
    expect(scene.sent.at(-1)).toBe('HEAD /a n3:1');
    probed.release();
    expect(await Promise.all([outcome, waiting])).toEqual(['answered', 'answered']);
  });

  test('after the credential was refused: the request goes no further', async () => {
    const scene = await used();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply);
    const outcome = scene.send();
    await first.came;
    scene.client.health.refuse(scene.client.health.attempt());
    first.release();
    expect([await outcome, scene.sent]).toEqual(['refused', ['GET /x n1:3']]);
  });

  test('after two uses, at once: the same request finds out with its second attempt', async () => {
    const scene = await used();
    scene.replies.push(challenge('n2'), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x n1:3', 'GET /x n2:1']);
  });

  test.each([
    [99, ['GET /x n1:3', 'GET /x n2:1']],
    [100, ['GET /x n1:3', 'HEAD /x', 'HEAD /x n3:1', 'GET /x', 'GET /x n4:1']],
  ])('after two uses and %i ms', async (ms, sent) => {
    const scene = await used();
    const late = delayed(scene, ms, challenge('n2'));
    scene.replies.push(
      late,
      ...(ms < 100 ? [answered()] : [challenge('n3'), answered(), challenge('n4'), answered()]),
    );
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(sent);
  });

  test('while the request that finds out is under way, others wait for it', async () => {
    const scene = await used();
    const second = held(answered());
    scene.replies.push(challenge('n2'), second.reply, answered());
    const testing = scene.send({ target: '/a' });
    await second.came;
    const waiting = scene.send({ target: '/b' });
    await turn();
    expect(scene.sent).toEqual(['GET /a n1:3', 'GET /a n2:1']);
    expect(scene.client.flights.busy).toBe(true);
    second.release();
    expect(await Promise.all([testing, waiting])).toEqual(['answered', 'answered']);
    expect(scene.sent.at(-1)).toBe('GET /b n2:2');
  });

  test('while other requests are under way: the gateway finds out with one of its own', async () => {
    const scene = await used();
    const other = held(answered());
    scene.replies.push(other.reply, challenge('n2'), challenge('n3'), answered(), answered());
    const busy = scene.send({ target: '/a' });
    await other.came;
    expect(await scene.send({ target: '/b' })).toBe('answered');
    expect(scene.sent).toEqual(['GET /a n1:3', 'GET /b n1:4', 'HEAD /b', 'HEAD /b n3:1', 'GET /b n2:1']);
    expect(scene.events).toContain('confirm /b');
    other.release();
    await busy;
  });

  test('although a later attempt was accepted: nothing need be found out', async () => {
    const scene = await used();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, answered(), answered());
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent).toEqual(['GET /a n1:3', 'GET /b n1:4', 'GET /a n2:1']);
  });

  test('although a later attempt was accepted, after long: another nonce is asked for', async () => {
    const scene = await used();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, answered(), challenge('n3'), answered());
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    scene.clock.at += 100;
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent.slice(2)).toEqual(['GET /a', 'GET /a n3:1']);
  });

  test('with another version at hand: only attempts from now on count', async () => {
    const scene = await used();
    scene.hasAlternatives = true;
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, answered(), challenge('n3'), answered(), answered());
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.events).toContain('confirm /a');
  });

  test('twice, with the credential found good in between: it is not asked for again', async () => {
    const scene = await used();
    scene.replies.push(
      delayed(scene, SLOW_MS, challenge('n2')),
      challenge('n3'),
      answered(),
      challenge('n4'),
      challenge('n5'),
    );
    expect(await scene.send()).toBe('upstream-target-refused');
    expect(scene.sent).toEqual(['GET /x n1:3', 'HEAD /x', 'HEAD /x n3:1', 'GET /x', 'GET /x n4:1']);
    expect(scene.events.filter((event) => /confirm/.test(event))).toEqual(['confirm /x']);
  });

  test('for a request whose last attempt it was, with another version at hand: one more probe if the first told nothing', async () => {
    const turn = { ...FIRST, attempts: 1 };
    const good = await used();
    good.hasAlternatives = true;
    good.replies.push(challenge('n2'), lost(), challenge('n3'), answered());
    expect(await good.send({}, { turn })).toBe('upstream-protocol');
    expect(good.sent).toEqual(['GET /x n1:3', 'HEAD /x', 'HEAD /x', 'HEAD /x n3:1']);
    const bad = await used();
    bad.hasAlternatives = true;
    bad.replies.push(challenge('n2'), lost(), challenge('n3'), challenge('n4'));
    expect(await bad.send({}, { turn })).toBe('refused');
  });

  test('for a request whose last attempt it was, without another version: nothing is asked', async () => {
    const scene = await used();
    scene.replies.push(challenge('n2'), lost());
    expect(await scene.send({}, { turn: { ...FIRST, attempts: 1 } })).toBe('upstream-protocol');
    expect(scene.sent).toEqual(['GET /x n1:3']);
  });

  test('and was sent before a reset: it says nothing', async () => {
    const scene = await unknown();
    const reset: Reply = (...args) => {
      scene.client.health.reset();
      return challenge('n3')(...args);
    };
    scene.replies.push(challenge('n2'), reset, answered());
    expect(await scene.send({}, { turn: OWN })).toBe('answered');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1', 'GET /x n3:1']);
  });
});
