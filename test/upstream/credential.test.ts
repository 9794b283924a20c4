import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import { WAITING_MS } from '../../src/upstream/versions.ts';
import {
  answered,
  challenge,
  credential,
  delayed,
  HandshakeScene,
  held,
  lost,
  type Reply,
  type SceneOptions,
  stale,
  unauthorized,
} from '../handshake/scene.ts';
import { reportedDuring } from '../support/reported.ts';
import { until } from '../support/until.ts';

const SLOW_MS = 5_000;
const SOON_MS = 1;

/** A known nonce, and nothing known of the credential. */
async function unknown(options?: SceneOptions, parameters?: string): Promise<HandshakeScene> {
  const scene = new HandshakeScene(options);
  await scene.warmUp('n1', parameters);
  scene.health.reset();
  return scene;
}

/** A nonce that two requests have used. */
async function used(options?: SceneOptions, parameters?: string): Promise<HandshakeScene> {
  const scene = new HandshakeScene(options);
  await scene.warmUp('n1', parameters);
  scene.replies.push(answered());
  await scene.send();
  for (const list of [scene.sent, scene.events]) list.length = 0;
  return scene;
}

async function warm(options?: SceneOptions): Promise<HandshakeScene> {
  const scene = new HandshakeScene(options);
  await scene.warmUp();
  return scene;
}

const usedWithoutCount = (options?: SceneOptions): Promise<HandshakeScene> => used(options, '');

const cold = async (options?: SceneOptions): Promise<HandshakeScene> => new HandshakeScene(options);

const OTHER = { hasOther: true };
const REFUSED = 'upstream-credential-refused';
const TARGET = 'upstream-target-refused';

const after =
  (ms: number, reply: Reply): ((scene: HandshakeScene) => Reply) =>
  (scene) =>
    delayed(scene, ms, reply);

/** A reply that takes long, so that its challenge may have been dropped. */
const slow = (reply: Reply): ((scene: HandshakeScene) => Reply) => after(SLOW_MS, reply);

type Rule = [
  what: string,
  start: (options?: SceneOptions) => Promise<HandshakeScene>,
  options: SceneOptions,
  exchanges: [sent: string, reply: Reply | ((scene: HandshakeScene) => Reply)][],
  result: string,
  /** What else is known then. */
  check?: (scene: HandshakeScene) => void,
];

/** What one request costs, and how it ends. `former` answers with the other version. */
const rules: Rule[] = [
  [
    'an unknown version that is refused once, and found good: the request goes on',
    cold,
    {},
    [
      ['GET /x', challenge('n1')],
      ['GET /x n1:1', challenge('n2')],
      ['HEAD /neutral', challenge('n3')],
      ['HEAD /neutral n3:1', answered()],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'an unknown version that is refused twice',
    cold,
    {},
    [
      ['GET /x', challenge('n1')],
      ['GET /x n1:1', challenge('n2')],
      ['HEAD /neutral', challenge('n3')],
      ['HEAD /neutral n3:1', challenge('n4')],
    ],
    REFUSED,
  ],
  [
    'an unknown version that is refused once: the other one answers a challenge of the target that is asked',
    cold,
    OTHER,
    [
      ['GET /x', challenge('n1')],
      ['GET /x n1:1', challenge('n2')],
      ['HEAD /neutral', challenge('n3')],
      ['HEAD /neutral n3:1 former', answered()],
      ['GET /x n3:2 former', answered()],
    ],
    'answered',
  ],
  [
    'an unknown version that is refused once where the gateway asks: the other one answers the challenge in hand',
    cold,
    OTHER,
    [
      ['GET /neutral', challenge('n1')],
      ['GET /neutral n1:1', challenge('n2')],
      ['GET /neutral n2:1 former', answered()],
      ['GET /neutral n2:2 former', answered()],
    ],
    'answered',
  ],
  [
    'every version is wrong, and the neutral target serves everybody: none is accepted there',
    cold,
    OTHER,
    [
      ['GET /x', challenge('n1')],
      ['GET /x n1:1', challenge('n2')],
      ['HEAD /neutral', answered()],
      ['GET /neutral fresh', answered()],
      ['GET /x fresh', challenge('n3')],
      ['GET /x n3:1 former', challenge('n4')],
      ['HEAD /neutral', answered()],
      ['GET /neutral fresh', answered()],
      ['GET /x fresh', challenge('n5')],
      ['GET /x n5:1', challenge('n6')],
      ['HEAD /neutral', answered()],
      ['GET /neutral fresh', answered()],
      ['GET /x fresh', challenge('n7')],
      ['GET /x n7:1 former', challenge('n8')],
    ],
    REFUSED,
    ({ events }) => expect(events).not.toContain('version 6 promoted'),
  ],
  [
    'refused twice, and found good in between: the upstream refuses the target',
    cold,
    {},
    [
      ['GET /x', challenge('n1')],
      ['GET /x n1:1', challenge('n2')],
      ['HEAD /neutral', challenge('n3')],
      ['HEAD /neutral n3:1', answered()],
      ['GET /x n2:1', challenge('n4')],
    ],
    TARGET,
  ],
  [
    'refused by a 401 that names the nonce again: that proves nothing, and costs no attempt',
    cold,
    {},
    [
      ['GET /x', challenge('n1')],
      ['GET /x n1:1', challenge('n1')],
      ['HEAD /neutral', challenge('n2')],
      ['HEAD /neutral n2:1', answered()],
      ['GET /x', challenge('n2')],
      ['GET /x n2:2', challenge('n2')],
      ['GET /x', challenge('n3')],
      ['GET /x n3:1', answered()],
    ],
    'answered',
  ],
  [
    'an unknown version, with another one at hand: no known nonce is used, which may cost an attempt',
    unknown,
    OTHER,
    [
      ['GET /x', challenge('n2')],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'a nonce that was used once, refused: the request tests the credential with the challenge in hand',
    warm,
    {},
    [
      ['GET /x n1:2', challenge('n2')],
      ['GET /x n2:1', answered()],
    ],
    'answered',
    ({ events }) => expect(events.slice(0, 2)).toEqual(['attempt stale', 'challenge stale']),
  ],
  [
    'and the new one, too: the gateway asks for itself, and the credential is refused',
    warm,
    {},
    [
      ['GET /x n1:2', challenge('n2')],
      ['GET /x n2:1', challenge('n3')],
      ['HEAD /x fresh', challenge('n4')],
      ['HEAD /x n4:1', challenge('n5')],
    ],
    REFUSED,
    ({ events, health }) => {
      expect(events).toEqual([
        ...['attempt stale', 'challenge stale', 'attempt refused'],
        ...['attempt challenged', 'challenge stale', 'attempt refused', 'version 7 refused'],
      ]);
      expect(health.refused).toBe(true);
    },
  ],
  [
    'and the new one, too, but the credential is good: the upstream refuses the target',
    warm,
    {},
    [
      ['GET /x n1:2', challenge('n2')],
      ['GET /x n2:1', challenge('n3')],
      ['HEAD /x fresh', challenge('n4')],
      ['HEAD /x n4:1', answered()],
    ],
    TARGET,
    ({ health, error }) => {
      expect(health.accepted).toBe(true);
      expect(error?.detail).toContain('may use it');
    },
  ],
  [
    'a nonce that was used once, refused without a challenge: there is nothing to answer',
    warm,
    {},
    [['GET /x n1:2', unauthorized('Basic realm="r"')]],
    'upstream-no-digest',
  ],
  [
    'a nonce that was used once, refused after long: the request answers the challenge in hand',
    warm,
    {},
    [
      ['GET /x n1:2', slow(challenge('n2'))],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'a nonce that was used twice, refused at once: the request answers the challenge in hand',
    used,
    {},
    [
      ['GET /x n1:3', challenge('n2')],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'a nonce that was used twice, refused after 99 ms: the request answers the challenge in hand',
    used,
    {},
    [
      ['GET /x n1:3', after(99, challenge('n2'))],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'a nonce that was used twice, refused after 100 ms: the gateway asks',
    used,
    {},
    [
      ['GET /x n1:3', after(100, challenge('n2'))],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', answered()],
      ['GET /x', challenge('n4')],
      ['GET /x n4:1', answered()],
    ],
    'answered',
  ],
  [
    'a nonce that was used twice, refused after long: the gateway asks',
    used,
    {},
    [
      ['GET /y n1:3', slow(challenge('n2'))],
      ['HEAD /x fresh', after(SOON_MS, challenge('n3'))],
      ['HEAD /x n3:1', answered()],
      ['GET /y', challenge('n4')],
      ['GET /y n4:1', answered()],
    ],
    'answered',
  ],
  [
    'the same without a count: the request goes on with the nonce that the gateway found good',
    usedWithoutCount,
    {},
    [
      ['GET /y n1', slow(challenge('n2', ''))],
      ['HEAD /x fresh', after(SOON_MS, challenge('n3', ''))],
      ['HEAD /x n3', answered()],
      ['GET /y n3', answered()],
    ],
    'answered',
  ],
  [
    'without a count, and the target is of another realm: the nonce that was found good is none for it',
    usedWithoutCount,
    {},
    [
      ['GET /y n1', slow(unauthorized('Digest realm="other", nonce="n2"'))],
      ['HEAD /x fresh', after(SOON_MS, challenge('n3', ''))],
      ['HEAD /x n3', answered()],
      ['GET /y', unauthorized('Digest realm="other", nonce="n4"')],
      ['GET /y n4', answered()],
    ],
    'answered',
  ],
  [
    'without a count, and the upstream names another one to the gateway: nothing shows that this one is good',
    usedWithoutCount,
    {},
    [
      ['GET /y n1', slow(challenge('n2', ''))],
      ['HEAD /x fresh', after(SOON_MS, challenge('n3', ''))],
      ['HEAD /x n3', answered(200, 'nextnonce="n4"')],
      ['GET /y', challenge('n5', '')],
      ['GET /y n5', answered()],
    ],
    'answered',
  ],
  [
    'without a count, and in the same millisecond: the nonce that was found good may be older than the refusal',
    usedWithoutCount,
    {},
    [
      ['GET /y n1', slow(challenge('n2', ''))],
      ['HEAD /x fresh', challenge('n3', '')],
      ['HEAD /x n3', answered()],
      ['GET /y', challenge('n4', '')],
      ['GET /y n4', answered()],
    ],
    'answered',
  ],
  [
    'without a count, but the gateway could not find out: the request asks for another one',
    usedWithoutCount,
    {},
    [
      ['GET /x n1', slow(challenge('n2', ''))],
      ['HEAD /x fresh', lost()],
      ['GET /x fresh', lost()],
      ['GET /x', challenge('n3', '')],
      ['GET /x n3', answered()],
    ],
    'answered',
  ],
  [
    'without a count, where each nonce is for one request at a time: the request asks for one',
    usedWithoutCount,
    { policy: 'exclusive' },
    [
      ['GET /x n1', slow(challenge('n2', ''))],
      ['HEAD /x fresh', after(SOON_MS, challenge('n3', ''))],
      ['HEAD /x n3', answered()],
      ['GET /x', challenge('n4', '')],
      ['GET /x n4', answered()],
    ],
    'answered',
  ],
  [
    'with another version at hand, the gateway asks at once',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', answered()],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'refused in fact: the other version answers the challenge in hand, and the request its nonce',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', answered()],
      ['GET /x n4:2 former', answered()],
    ],
    'answered',
  ],
  [
    'the challenge in hand is stale: the other version asks for one',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', stale('n5')],
      ['HEAD /x', challenge('n6')],
      ['HEAD /x n6:1 former', answered()],
      ['GET /x n6:2 former', answered()],
    ],
    'answered',
  ],
  [
    'the nonce of the other version is refused as well: the request has two attempts with it',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', answered()],
      ['GET /x n4:2 former', stale('n5')],
      ['GET /x n5:1 former', answered()],
    ],
    'answered',
  ],
  [
    'all versions are refused: each is asked once more',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', challenge('n5')],
      ['HEAD /x fresh', challenge('n6')],
      ['HEAD /x n6:1', challenge('n7')],
      ['HEAD /x', challenge('n8')],
      ['HEAD /x n8:1 former', challenge('n9')],
    ],
    REFUSED,
  ],
  [
    'a changed password, and the upstream drops the nonce of the next one: it is asked once more',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', challenge('n5')],
      ['HEAD /x fresh', challenge('n6')],
      ['HEAD /x n6:1', challenge('n7')],
      ['HEAD /x', challenge('n8')],
      ['HEAD /x n8:1 former', answered()],
      ['GET /x n8:2 former', answered()],
    ],
    'answered',
  ],
  [
    'all versions are refused, and a minute has one attempt: each was asked once',
    warm,
    { ...OTHER, attemptsWhenRefused: 1 },
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', challenge('n5')],
    ],
    REFUSED,
  ],
  [
    'the questions of the gateway show nothing: the request goes on',
    used,
    {},
    [
      ['GET /x n1:3', slow(challenge('n2'))],
      ['HEAD /x fresh', lost()],
      ['GET /x fresh', lost()],
      ['GET /x', challenge('n3')],
      ['GET /x n3:1', answered()],
    ],
    'answered',
  ],
  [
    'twice, with the credential found good in between: it is not asked for again',
    used,
    {},
    [
      ['GET /x n1:3', slow(challenge('n2'))],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', answered()],
      ['GET /x', challenge('n4')],
      ['GET /x n4:1', challenge('n5')],
    ],
    TARGET,
  ],
  [
    'twice, with the credential found good in between, and the second time as stale: the target is not at fault',
    used,
    {},
    [
      ['GET /x n1:3', slow(challenge('n2'))],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', answered()],
      ['GET /x', challenge('n4')],
      ['GET /x n4:1', stale('n5')],
    ],
    'upstream-protocol',
    ({ error }) => expect(error?.detail).toContain('401 to both authenticated attempts'),
  ],
  [
    'a nonce of the request, of a version that was accepted: the gateway asks',
    warm,
    { policy: 'single-use' },
    [
      ['GET /x', challenge('n2')],
      ['GET /x n2:1', challenge('n3')],
      ['HEAD /x fresh', challenge('n4')],
      ['HEAD /x n4:1', answered()],
      ['GET /x n3:1', answered()],
    ],
    'answered',
  ],
  [
    'called stale twice: the gateway asks nothing for itself',
    warm,
    {},
    [
      ['GET /x n1:2', stale('n2')],
      ['GET /x n2:1', stale('n3')],
    ],
    'upstream-protocol',
  ],
  [
    'with another version at hand, and the questions of the gateway show nothing: the request goes on',
    warm,
    OTHER,
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', lost()],
      ['GET /x fresh', lost()],
      ['GET /x n2:1', answered()],
    ],
    'answered',
  ],
  [
    'refused in fact, and the question about the other version shows nothing: the request itself tries it',
    warm,
    { ...OTHER, attemptsWhenRefused: 9 },
    [
      ['GET /x n1:2', challenge('n2')],
      ['HEAD /x fresh', challenge('n3')],
      ['HEAD /x n3:1', challenge('n4')],
      ['HEAD /x n4:1 former', lost()],
      ['HEAD /x', lost()],
      ['GET /x fresh', lost()],
      ['HEAD /x fresh', challenge('n5')],
      ['HEAD /x n5:1', challenge('n6')],
      ['GET /x', challenge('n7')],
      ['GET /x n7:1 former', answered()],
    ],
    'answered',
    ({ events }) => expect(events).toContain('version 6 promoted'),
  ],
];

test.each(rules.map((rule) => [rule[0], rule] as const))('%s', async (_what, rule) => {
  const [, start, options, exchanges, result, check] = rule;
  const scene = await start(options);
  for (const [, reply] of exchanges) {
    scene.replies.push((request) => {
      // A rule of this table makes its reply when the exchange comes.
      const made = (reply as (given: unknown) => unknown)(reply.length === 0 ? request : scene);
      return typeof made === 'function' ? made(request) : made;
    });
  }
  const [, target = ''] = exchanges[0]?.[0].split(' ') ?? [];
  expect(await scene.send({ target })).toBe(result);
  expect(scene.sent).toEqual(exchanges.map(([sent]) => sent));
  check?.(scene);
});

describe('an unknown version', () => {
  test('is tested by one request while the others wait', async () => {
    const scene = await unknown();
    const first = held(answered());
    scene.replies.push(first.reply, answered(), answered());
    const outcomes = ['/a', '/b', '/c'].map((target) => scene.send({ target }));
    await first.came;
    expect(scene.sent).toEqual(['GET /a n1:2']);
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered', 'answered']);
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3', 'GET /c n1:4']);
  });

  test('that is refused is refused for all who waited', async () => {
    const scene = await unknown();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, challenge('n3'), challenge('n4'), challenge('n5'));
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    expect(await Promise.all(outcomes)).toEqual([REFUSED, REFUSED]);
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /a n2:1', 'HEAD /x', 'HEAD /x n4:1']);
  });

  test('is tested by the next request if the first fails, while the others wait on', async () => {
    const scene = await unknown();
    const [first, second] = [held(lost({ broke: false })), held(answered())];
    scene.replies.push(first.reply, challenge('n2'), second.reply, answered());
    const outcomes = ['/a', '/b', '/c'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    await second.came;
    await turn();
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b', 'GET /b n2:1']);
    second.release();
    expect(await Promise.all(outcomes)).toEqual(['upstream-unreachable', 'answered', 'answered']);
    expect([scene.sent.at(-1), scene.health.accepted]).toEqual(['GET /c n2:2', true]);
  });

  test('is tested by one more request after a response that says nothing, then by two at once', async () => {
    const scene = await unknown();
    const [first, second, third, fourth] = [503, 403, 200, 200].map((status) => held(answered(status)));
    scene.replies.push(...[first, second, third, fourth].map((each) => each?.reply as Reply), answered());
    const outcomes = ['/a', '/b', '/c', '/d', '/e'].map((target) => scene.send({ target }));
    await first?.came;
    first?.release();
    await second?.came;
    await turn();
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3']);
    second?.release();
    await Promise.all([third?.came, fourth?.came]);
    await turn();
    expect(scene.sent.slice(2)).toEqual(['GET /c n1:4', 'GET /d n1:5']);
    expect(scene.health.accepted).toBe(false);
    for (const each of [third, fourth]) each?.release();
    expect(await Promise.all(outcomes)).toEqual(Array(5).fill('answered'));
    expect(scene.health.accepted).toBe(true);
  });

  test('that is wrong costs no failed log-in for each who waited, though the first response says nothing', async () => {
    const scene = await unknown();
    const first = held(answered(503));
    scene.replies.push(first.reply, challenge('n2'));
    for (const nonce of ['n3', 'n4', 'n5']) scene.replies.push(challenge(nonce));
    const outcomes = ['/a', '/b', '/c', '/d', '/e'].map((target) => scene.send({ target }));
    await first.came;
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', ...Array(4).fill(REFUSED)]);
    expect(scene.sent).toEqual([
      ...['GET /a n1:2', 'GET /b n1:3', 'GET /b n2:1'],
      ...['HEAD /x', 'HEAD /x n4:1'],
    ]);
  });

  test('keeps nobody waiting for longer than a response may take', async () => {
    const scene = await unknown({ options: { timeouts: { response: 20 } } });
    const [first, second] = [held(answered()), held(answered())];
    scene.replies.push(first.reply, second.reply, answered());
    const testing = scene.send({ target: '/a' });
    await first.came;
    const waiting = scene.send({ target: '/b' });
    await second.came;
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3']);
    // Nor for a test that takes longer already.
    const late = scene.send({ target: '/c' });
    await until(() => scene.sent.at(-1) === 'GET /c n1:4');
    first.release();
    second.release();
    expect(await Promise.all([testing, waiting, late])).toEqual(['answered', 'answered', 'answered']);
  });

  test('that an attempt from before shows to be good keeps nobody waiting for the test', async () => {
    const scene = await warm();
    const [earlier, testing] = [held(answered()), held(answered())];
    scene.replies.push(earlier.reply, testing.reply, answered());
    const first = scene.send({ target: '/c' });
    await earlier.came;
    scene.health.reset();
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
    const waiting = scene.send({ cancellation });
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await waiting).toBe('client-closed');
    first.release();
    await testing;
    expect(scene.sent).toHaveLength(1);
  });
});

describe('a refusal', () => {
  test('of a nonce without a count, after one use: the request answers its own challenge', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', '');
    const other = held(answered());
    scene.replies.push(other.reply, challenge('n2', ''), delayed(scene, SOON_MS, challenge('n3', '')));
    scene.replies.push(answered(), answered());
    const busy = scene.send({ target: '/a' });
    await other.came;
    expect(await scene.send({ target: '/b' })).toBe('answered');
    expect(scene.sent).toEqual(['GET /a n1', 'GET /b n1', 'HEAD /x fresh', 'HEAD /x n3', 'GET /b n2']);
    other.release();
    await busy;
  });

  test('of a nonce without a count, which another request had replaced before: the request answers its own challenge', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', '');
    scene.replies.push(answered());
    await scene.send();
    const first = held(delayed(scene, SOON_MS, challenge('n2', '')));
    scene.replies.push(first.reply, challenge('n5', 'stale=true'), answered(), answered());
    scene.sent.length = 0;
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent).toEqual(['GET /a n1', 'GET /b n1', 'GET /b n5', 'GET /a n2']);
  });

  test('while a defect keeps the gateway from finding out: it is reported, and the request goes on', async () => {
    const scene = await used();
    scene.replies.push(delayed(scene, SLOW_MS, challenge('n2')), () => {
      throw new TypeError('a defect');
    });
    scene.replies.push(challenge('n3'), answered());
    const reported = await reportedDuring(async () => {
      expect(await scene.send()).toBe('answered');
    });
    expect(reported).toEqual(['a defect']);
    expect(scene.sent.slice(1)).toEqual(['HEAD /x fresh', 'GET /x', 'GET /x n3:1']);
  });

  test('of two requests at once: the gateway finds out once', async () => {
    const scene = await used();
    const [first, second] = [held(challenge('n2')), held(challenge('n3'))];
    scene.replies.push(first.reply, second.reply, challenge('n4'), answered(), answered(), answered());
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    first.release();
    second.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
    expect(scene.sent.filter((line) => line.startsWith('HEAD'))).toEqual(['HEAD /x fresh', 'HEAD /x n4:1']);
  });

  test('while the gateway finds out: requests with another nonce wait for it', async () => {
    const scene = await used(OTHER);
    const probed = held(answered());
    scene.replies.push(challenge('n2'), challenge('n3'), probed.reply, answered(), answered());
    const outcome = scene.send({ target: '/a' });
    await probed.came;
    const waiting = scene.send({ target: '/b' });
    await turn();
    expect(scene.sent.at(-1)).toBe('HEAD /x n3:1');
    probed.release();
    expect(await Promise.all([outcome, waiting])).toEqual(['answered', 'answered']);
  });

  test('while the gateway finds out for longer than a request may wait: it goes on', async () => {
    const scene = await used({ ...OTHER, options: { timeouts: { response: 20 } } });
    const probed = held(answered());
    scene.replies.push(challenge('n2'), challenge('n3'), probed.reply, answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent.at(-1)).toBe('GET /x n2:1');
    probed.release();
  });

  test('while the gateway finds out for longer than that, and refused once more: the target is not at fault', async () => {
    const timeouts = { connect: 20, response: 20, idle: 20 };
    const scene = await warm({ ...OTHER, policy: 'single-use', options: { timeouts } });
    const probed = held(lost());
    scene.replies.push(challenge('n2'), challenge('n3'), probed.reply, challenge('n4'));
    expect(await scene.send()).toBe('upstream-protocol');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1', 'HEAD /x fresh', 'GET /x n3:1']);
    scene.replies.push(lost());
    probed.release();
  });

  test('while the gateway finds out for longer than a request may wait, and a question was refused: it waits on', async () => {
    const scene = await warm({ ...OTHER, options: { timeouts: { response: 20 } } });
    const successor = held(answered());
    scene.replies.push(challenge('n2'), challenge('n3'), challenge('n4'), successor.reply);
    scene.replies.push(answered(), answered());
    const [refused, waiting] = [new AttemptBudget('GET'), new AttemptBudget('GET')];
    const first = scene.send({}, refused);
    await successor.came;
    const second = scene.send({}, waiting);
    await until(() => refused.waitedMs > 0 && waiting.waitedMs > 0);
    await turn();
    expect(scene.sent).toEqual(['GET /x n1:2', 'HEAD /x fresh', 'HEAD /x n3:1', 'HEAD /x n4:1 former']);
    successor.release();
    expect(await Promise.all([first, second])).toEqual(['answered', 'answered']);
    // The first one has one attempt left, so that it risks no known nonce.
    expect(scene.sent.slice(4).sort()).toEqual(['GET /x', 'GET /x n4:2 former']);
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
    expect(scene.sent.slice(1)).toEqual(['GET /b n1:4', 'HEAD /x fresh', 'HEAD /x n3:1', 'GET /b n2:1']);
    other.release();
    await busy;
  });

  test.each([
    [99, ['GET /a n2:1']],
    [100, ['GET /a', 'GET /a n3:1']],
  ])('%i ms after the attempt, although a later one was accepted: it is void', async (ms, sent) => {
    const scene = await used();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, answered(), ...(sent.length === 1 ? [] : [challenge('n3')]), answered());
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    scene.clock.at += ms;
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent.slice(2)).toEqual(sent);
  });

  test('after the version was refused: the request goes no further', async () => {
    const scene = await used();
    const first = held(challenge('n2'));
    scene.replies.push(first.reply, challenge('n3'), challenge('n4'));
    const outcome = scene.send();
    await first.came;
    scene.credential.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
    first.release();
    expect(await outcome).toBe(REFUSED);
    expect(scene.sent.slice(1)).toEqual(['HEAD /x', 'HEAD /x n3:1']);
  });

  test('that was sent before a reset says nothing', async () => {
    const scene = await warm({ policy: 'single-use' });
    const reset: Reply = (...args) => {
      scene.health.reset();
      return challenge('n3')(...args);
    };
    scene.replies.push(challenge('n2'), reset, answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1', 'GET /x n3:1']);
  });

  test('of a request that may have more attempts: it obtains a nonce of its own all the same', async () => {
    const scene = await used();
    scene.replies.push(delayed(scene, SLOW_MS, challenge('n2')), delayed(scene, SOON_MS, challenge('n3')));
    scene.replies.push(answered(), challenge('n4'), answered());
    expect(await scene.send({}, new AttemptBudget('GET', undefined, 3))).toBe('answered');
    expect(scene.sent.slice(-2)).toEqual(['GET /x', 'GET /x n4:1']);
  });

  test('of nonces that requests have just obtained, and that it names again: they take turns', async () => {
    const scene = await warm({ policy: 'single-use' });
    const [first, second] = [held(challenge('n2')), held(challenge('n3'))];
    const again = held(answered());
    scene.replies.push(first.reply, second.reply, challenge('n2'), challenge('n3'));
    scene.replies.push(
      challenge('n4'),
      answered(),
      challenge('n5'),
      again.reply,
      challenge('n6'),
      answered(),
    );
    const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
    await Promise.all([first.came, second.came]);
    first.release();
    second.release();
    await again.came;
    await turn();
    const [one, other] = scene.sent.at(-1)?.startsWith('GET /a') === true ? ['/a', '/b'] : ['/b', '/a'];
    const probe = ['HEAD /x fresh', 'HEAD /x n4:1'];
    expect(scene.sent.slice(4)).toEqual([...probe, `GET ${one}`, `GET ${one} n5:1`]);
    again.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
    expect(scene.sent.slice(8)).toEqual([`GET ${other}`, `GET ${other} n6:1`]);
  });

  test('of such a nonce while another request takes its turn for longer than one may wait: it goes on', async () => {
    const scene = await warm({ policy: 'single-use', options: { timeouts: { response: 20 } } });
    const again = held(answered());
    scene.replies.push(challenge('n2'), challenge('n2'), challenge('n3'), answered(), challenge('n4'));
    scene.replies.push(again.reply, challenge('n5'), challenge('n5'), challenge('n6'), answered());
    scene.replies.push(challenge('n7'), answered());
    const first = scene.send({ target: '/a' });
    await again.came;
    expect(await scene.send({ target: '/b' })).toBe('answered');
    expect(scene.sent.slice(-2)).toEqual(['GET /b', 'GET /b n7:1']);
    again.release();
    expect(await first).toBe('answered');
  });

  test('while a request obtains a challenge: it is not answered before the gateway has found out', async () => {
    const scene = await warm({ policy: 'single-use' });
    const [asked, probed] = [held(challenge('n2')), held(answered())];
    scene.replies.push(asked.reply, challenge('n3'), challenge('n4'), challenge('n5'), probed.reply);
    const waiting = scene.send({ target: '/a' });
    await asked.came;
    const outcome = scene.send({ target: '/b' });
    await probed.came;
    asked.release();
    await turn();
    expect(scene.sent).toEqual(['GET /a', 'GET /b', 'GET /b n3:1', 'HEAD /x fresh', 'HEAD /x n5:1']);
    scene.replies.push(answered(), challenge('n6'), answered());
    probed.release();
    expect(await Promise.all([waiting, outcome])).toEqual(['answered', 'answered']);
    expect(scene.sent.slice(5)).toEqual(['GET /b n4:1', 'GET /a', 'GET /a n6:1']);
  });

  test('while the gateway finds out what an operator asked about: the request waits for that', async () => {
    const scene = await warm({ attemptsWhenRefused: 9 });
    const [first, probed] = [held(challenge('n2')), held(answered())];
    scene.replies.push(first.reply, challenge('n3'), challenge('n4'), challenge('n5'), probed.reply);
    const outcome = scene.send();
    await first.came;
    expect(await scene.credential.test('7', '/x', scene.transport)).toBe('refused');
    await probed.came;
    first.release();
    await turn();
    expect(scene.sent.at(-1)).toBe('HEAD /x n5:1');
    scene.replies.push(answered());
    probed.release();
    expect(await outcome).toBe('answered');
  });

  test('of a nonce of its own, after which another request was accepted: a second one bars the target at once', async () => {
    const scene = await warm({ policy: 'single-use' });
    const first = held(challenge('n3'));
    scene.replies.push(challenge('n2'), first.reply, challenge('n4'), answered(), challenge('n5'));
    const outcome = scene.send({ target: '/a' });
    await first.came;
    expect(await scene.send({ target: '/b' })).toBe('answered');
    first.release();
    expect(await outcome).toBe(TARGET);
    expect(scene.sent).toEqual(['GET /a', 'GET /a n2:1', 'GET /b', 'GET /b n4:1', 'GET /a n3:1']);
  });

  test('of a nonce that others have used costs none of the attempts of a minute', async () => {
    const scene = await warm();
    for (const nonce of ['n2', 'n3']) {
      scene.replies.push(challenge(nonce), answered());
      expect(await scene.send()).toBe('answered');
    }
    scene.replies.push(challenge('n4'), answered());
    expect(await scene.credential.test('7', '/x', scene.transport)).toBe('accepted');
  });

  test('of the last attempt, with no other version at hand: no more questions if the first shows nothing', async () => {
    const scene = await warm();
    scene.replies.push(challenge('n2'), challenge('n3'), lost(), lost());
    expect(await scene.send({}, new AttemptBudget('GET', undefined, 1))).toBe('upstream-protocol');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1', 'HEAD /x fresh', 'GET /x fresh']);
  });

  test('of the last attempt, with another version at hand: one more question if the first shows nothing', async () => {
    const scene = await warm(OTHER);
    scene.replies.push(challenge('n2'), challenge('n3'), lost(), lost(), challenge('n4'), answered());
    expect(await scene.send({}, new AttemptBudget('GET', undefined, 1))).toBe('upstream-protocol');
    expect(scene.sent.slice(2)).toEqual(['HEAD /x fresh', 'GET /x fresh', 'HEAD /x', 'HEAD /x n4:1']);
  });
});

describe('a new version', () => {
  const NEW = { ...credential, version: '8', username: 'new' };
  const NEWER = { ...credential, version: '9', username: 'newer' };
  const offer = (scene: HandshakeScene, change: object) =>
    scene.credential.offer({ name: 'main', current: credential, next: undefined, ...change });
  const happened = async (scene: HandshakeScene, event: string): Promise<void> => {
    for (let turns = 0; turns < 100 && !scene.events.includes(event); turns += 1) await turn();
    expect(scene.events).toContain(event);
  };

  test.each([
    ['the current one', { current: NEW }, 'version 8 refused'],
    ['the next one', { next: NEW }, 'version 8 waiting'],
  ])('%s is asked about in the background, and rejected by one refusal', async (_what, change, event) => {
    const scene = await warm();
    scene.replies.push(challenge('n2'), challenge('n3'));
    offer(scene, change);
    await happened(scene, event);
    expect(scene.sent).toEqual(['HEAD /x', 'HEAD /x n2:1 new']);
    scene.replies.push(answered());
    expect([await scene.send(), scene.sent.at(-1)]).toEqual(['answered', 'GET /x n1:2']);
  });

  test('takes over once the upstream accepts it where it last asked for authentication and served', async () => {
    const scene = await cold();
    scene.replies.push(challenge('n1'), answered(), answered(300), answered(), answered());
    scene.replies.push(challenge('n2'), answered(), answered());
    await scene.send({ target: '/x?q=1' });
    scene.facts.challenged = false;
    await scene.send({ target: '/moved' });
    await scene.send({ target: '/made', method: 'DELETE' });
    // Where nothing is protected, no password is wrong.
    await scene.send({ target: '/public' });
    offer(scene, { current: NEW });
    await happened(scene, 'version 8 promoted');
    expect(await scene.send()).toBe('answered');
    expect(scene.sent.slice(5)).toEqual(['HEAD /x?q=1', 'HEAD /x?q=1 n2:1 new', 'GET /x n2:2 new']);
  });

  test('is not asked about before the version in use is accepted', async () => {
    const scene = await cold();
    offer(scene, { current: NEW });
    await turn();
    expect(scene.sent).toEqual([]);
    scene.replies.push(challenge('n1'), answered(), challenge('n2'), answered());
    await scene.send();
    await happened(scene, 'version 8 promoted');
  });

  test.each<[string, Reply, object, string, string[]]>([
    ['its nonce once more', challenge('n2'), { next: NEWER }, 'answered', ['GET /x', 'GET /x n4:1 newer']],
    ['another nonce', challenge('n3'), { next: NEWER }, 'answered', ['GET /x', 'GET /x n4:1 newer']],
    ['another nonce', challenge('n3'), {}, REFUSED, []],
  ])(
    'that leaves before the upstream refuses it with %s: the request goes on with what is there',
    async (...row) => {
      const [, reply, change, result, sent] = row;
      const scene = await warm();
      scene.credential.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
      offer(scene, { next: NEW });
      const first = held(reply);
      scene.replies.push(challenge('n2'), first.reply, challenge('n4'), answered());
      const outcome = scene.send();
      await first.came;
      offer(scene, change);
      first.release();
      expect(await outcome).toBe(result);
      expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1 new', ...sent]);
      expect(scene.events).not.toContain('version 8 refused');
    },
  );

  test('of which nothing was found out is asked about again after a second, then less often', async () => {
    const scene = await warm();
    const busy = (): Reply[] => [challenge('n2'), answered(503)];
    scene.replies.push(...busy());
    offer(scene, { current: NEW });
    for (const [wait, exchanges] of [
      [0, 2],
      [999, 0],
      [1, 2],
      [1_999, 0],
      [1, 2],
    ] as const) {
      scene.clock.at += wait;
      if (wait > 0) {
        scene.sent.length = 0;
        scene.replies.push(answered(), ...(exchanges > 0 ? busy() : []));
        await scene.send();
        scene.sent.shift();
      }
      // Also what follows the last reply.
      for (let turns = 0; turns < 20; turns += 1) await turn();
      expect(scene.sent).toHaveLength(exchanges);
    }
  });
});

describe('a refused version that an operator asks about', () => {
  /** The upstream refuses it, which has cost two attempts. */
  async function refused(attemptsWhenRefused: number): Promise<HandshakeScene> {
    const scene = new HandshakeScene({ attemptsWhenRefused });
    scene.replies.push(challenge('n1'), challenge('n2'), challenge('n3'), challenge('n4'));
    expect(await scene.send()).toBe(REFUSED);
    for (const list of [scene.sent, scene.events]) list.length = 0;
    return scene;
  }

  const ask = ({ credential: asked, transport, version }: HandshakeScene): Promise<string> =>
    asked.test(version.version, '/neutral', transport);

  test('serves at once when it is accepted again, although no attempt of a client is due', async () => {
    const scene = await refused(3);
    expect([await scene.send(), scene.sent]).toEqual([REFUSED, []]);
    scene.replies.push(challenge('n5'), answered(), answered());
    expect(await ask(scene)).toBe('accepted');
    expect(scene.events).toContain(`version ${scene.version.version} accepted`);
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['HEAD /neutral', 'HEAD /neutral n5:1', 'GET /x n5:2']);
  });

  test('costs no more attempts than a minute may have', async () => {
    const scene = await refused(3);
    scene.replies.push(challenge('n5'), challenge('n6'));
    expect([await ask(scene), await ask(scene)]).toEqual(['refused', 'spent']);
    expect(scene.sent).toHaveLength(2);
    scene.clock.at += 60_000;
    scene.replies.push(challenge('n7'), challenge('n8'));
    expect(await ask(scene)).toBe('refused');
  });

  test('is tried by the next request here when another process has found it accepted', async () => {
    const scene = await refused(2);
    scene.credential.promote(scene.version.version);
    expect([scene.health.refused, scene.credential.versions.areRefused]).toEqual([false, false]);
    scene.replies.push(challenge('n5'), answered());
    expect(await scene.send()).toBe('answered');
  });
});

describe('a former version, when the one in use is refused', () => {
  async function former(options?: SceneOptions): Promise<HandshakeScene> {
    const scene = await warm({ ...OTHER, ...options });
    scene.credential.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
    return scene;
  }

  test('is put in use by the request that it serves', async () => {
    const scene = await former();
    scene.replies.push(challenge('n2'), answered());
    expect(await scene.send()).toBe('answered');
    expect([scene.sent, scene.version.version]).toEqual([['GET /x', 'GET /x n2:1 former'], '6']);
  });

  test('is refused when a question confirms the refusal', async () => {
    const scene = await former();
    scene.replies.push(challenge('n2'), challenge('n3'), challenge('n4'), challenge('n5'));
    expect(await scene.send()).toBe(REFUSED);
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1 former', 'HEAD /x', 'HEAD /x n4:1 former']);
    expect(scene.events).toContain('version 6 refused');
  });

  test('is not refused by one answer, since the upstream may have dropped its nonce', async () => {
    const scene = await former();
    scene.replies.push(challenge('n2'), challenge('n3'), challenge('n4'), answered(), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent.slice(2)).toEqual(['HEAD /x', 'HEAD /x n4:1 former', 'GET /x n3:1 former']);
  });

  test.each<[string, SceneOptions, (scene: HandshakeScene) => Promise<unknown>, Reply[], string]>([
    [
      'that names its nonce again',
      {},
      async () => undefined,
      [challenge('n2'), challenge('n4'), answered(), challenge('n5'), answered()],
      'GET /x n5:1 former',
    ],
    [
      'although an operator has just found it accepted',
      { policy: 'single-use' },
      ({ credential: tested, transport, replies }) => {
        replies.unshift(challenge('n8'), answered());
        return tested.test('6', '/x', transport);
      },
      [challenge('n3'), challenge('n4'), answered(), answered()],
      'GET /x n3:1 former',
    ],
  ])('is not refused by one refusal %s', async (_what, options, begin, replies, last) => {
    const scene = await former({ attemptsWhenRefused: 9, ...options });
    await begin(scene);
    scene.sent.length = 0;
    scene.replies.push(challenge('n2'), ...replies);
    expect(await scene.send()).toBe('answered');
    expect(scene.sent.slice(0, 2)).toEqual(['GET /x', 'GET /x n2:1 former']);
    expect([scene.sent[3], scene.sent.at(-1)]).toEqual(['HEAD /x n4:1 former', last]);
    expect(scene.events).not.toContain('version 6 refused');
  });
});

describe('a credential of which every version is refused', () => {
  async function refused(attemptsWhenRefused: number): Promise<HandshakeScene> {
    const scene = await warm({ ...OTHER, attemptsWhenRefused });
    const { versions } = scene.credential;
    for (const version of versions.all) versions.refuse(version, version.health.attempt(), 'verdict');
    return scene;
  }

  test('is tried with each version in turn, as often as a minute allows', async () => {
    const scene = await refused(1);
    const users: unknown[] = [];
    for (let minute = 1; minute <= 3; minute += 1) {
      scene.sent.length = 0;
      scene.clock.at += 60_000;
      scene.replies.push(challenge(`a${minute}`), challenge(`b${minute}`));
      expect([await scene.send(), await scene.send()]).toEqual([REFUSED, REFUSED]);
      users.push([...scene.sent]);
    }
    expect(users).toEqual([
      ['HEAD /x', 'HEAD /x a1:1'],
      ['HEAD /x', 'HEAD /x a2:1 former'],
      ['HEAD /x', 'HEAD /x a3:1'],
    ]);
  });

  test('fails the request after one attempt, however long that took', async () => {
    const scene = await refused(60);
    scene.clock.at += 60_000;
    scene.replies.push(delayed(scene, SLOW_MS, challenge('n2')), delayed(scene, SLOW_MS, challenge('n3')));
    expect(await scene.send()).toBe(REFUSED);
    expect(scene.sent).toEqual(['HEAD /x', 'HEAD /x n2:1']);
  });

  test('serves with the one that is accepted again', async () => {
    const scene = await refused(1);
    scene.clock.at += 60_000;
    scene.replies.push(challenge('n2'), challenge('n3'));
    expect(await scene.send()).toBe(REFUSED);
    scene.clock.at += 60_000;
    scene.replies.push(challenge('n4'), answered(), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent.slice(2)).toEqual(['HEAD /x', 'HEAD /x n4:1 former', 'GET /x n4:2 former']);
    expect(scene.events).toContain('version 6 promoted');
  });

  test('is tried by the next request if a question showed nothing', async () => {
    const scene = await refused(1);
    scene.clock.at += 60_000;
    scene.replies.push(lost(), lost(), challenge('n2'), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['HEAD /x', 'GET /x fresh', 'GET /x', 'GET /x n2:1']);
  });

  test('is sent by no others while a request that tests it takes longer than they may wait, and reported once', async () => {
    const scene = new HandshakeScene({ attemptsWhenRefused: 1, options: { timeouts: { response: 20 } } });
    scene.credential.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
    scene.clock.at += 15 * 60_000;
    const slow = held(challenge('n2'));
    scene.replies.push(challenge('n1'), slow.reply, challenge('n3'), challenge('n4'));
    const testing = scene.send({ target: '/a' });
    await slow.came;
    const others = ['/b', '/c'].map((target) => scene.send({ target }));
    expect(await Promise.all(others)).toEqual([REFUSED, REFUSED]);
    expect(scene.sent).toEqual(['GET /a', 'GET /a n1:1']);
    slow.release();
    expect(await testing).toBe(REFUSED);
    expect(scene.sent.slice(2)).toEqual(['HEAD /neutral', 'HEAD /neutral n3:1']);
    expect(scene.events.filter((event) => event === `version ${scene.version.version} refused`)).toHaveLength(
      1,
    );
  });
});

test('a request without an attempt left waits while an unknown version is asked about, and goes on with it', async () => {
  const scene = await warm(OTHER);
  scene.replies.push(
    ...[challenge('n2'), challenge('n3'), challenge('n4'), challenge('n5'), lost(), lost(), lost()],
    ...[challenge('n6'), answered(), answered()],
  );
  expect(await scene.send({}, new AttemptBudget('GET', undefined, 1))).toBe('answered');
  expect(scene.sent).toEqual([
    ...['GET /x', 'GET /x n2:1', 'HEAD /x fresh', 'HEAD /x n4:1'],
    ...['HEAD /x n5:1 former', 'HEAD /x', 'GET /x fresh'],
    ...['HEAD /x', 'HEAD /x n6:1 former', 'GET /x n6:2 former'],
  ]);
});

test('a request without an attempt left is to be sent again while nothing is known of another version', async () => {
  const scene = await warm({ ...OTHER, attemptsWhenRefused: 9 });
  const nothing = [lost(), lost()];
  scene.replies.push(
    ...[challenge('n2'), challenge('n3'), challenge('n4'), challenge('n5'), lost(), ...nothing, ...nothing],
  );
  expect(await scene.send({}, new AttemptBudget('GET', undefined, 1))).toBe('upstream-protocol');
  expect(scene.sent.slice(7)).toEqual(['HEAD /x', 'GET /x fresh']);
});

test('a request without an attempt left fails when every version has been refused', async () => {
  const scene = await warm(OTHER);
  for (let nonce = 2; nonce <= 8; nonce += 1) scene.replies.push(challenge(`n${nonce}`));
  expect(await scene.send({}, new AttemptBudget('GET', undefined, 1))).toBe(REFUSED);
  expect(scene.sent).toEqual([
    ...['GET /x', 'GET /x n2:1', 'HEAD /x fresh', 'HEAD /x n4:1'],
    ...['HEAD /x n5:1 former', 'HEAD /x', 'HEAD /x n7:1 former'],
  ]);
});

test('a target that the upstream refused twice in a minute gets no further request', async () => {
  const scene = await warm();
  for (const name of ['a', 'b']) {
    scene.replies.push(challenge(`${name}2`), challenge(`${name}3`), challenge(`${name}4`), answered());
    expect(await scene.send()).toBe(TARGET);
  }
  scene.sent.length = 0;
  expect([await scene.send(), scene.sent]).toEqual([TARGET, []]);
});

test('a response takes the refusals of its target back', async () => {
  const scene = await warm();
  const refuse = async (): Promise<string> => {
    scene.replies.push(challenge('a'), challenge('b'), challenge('c'), answered());
    return scene.send();
  };
  expect(await refuse()).toBe(TARGET);
  scene.replies.push(answered());
  expect(await scene.send()).toBe('answered');
  expect(await refuse()).toBe(TARGET);
  scene.replies.push(answered());
  expect(await scene.send()).toBe('answered');
});

test('the flight record has what the sources hold, and how each request ended', async () => {
  const scene = await warm();
  scene.replies.push(answered(404), lost({ broke: false }));
  await scene.send();
  await scene.send();
  const record = () => scene.recorder.lines('asked').map((line) => JSON.parse(line));
  const versionsOf = (): unknown => record()[0].credentials[0].versions;
  expect(versionsOf()).toEqual(['7']);
  const former = [{ ...credential, version: '6' }];
  scene.credential.offer({ name: 'main', current: credential, next: undefined, former });
  expect(versionsOf()).toEqual(['7', '6']);
  const ended = record().flatMap(({ kind, result }) => (kind === 'request' ? [result] : []));
  expect(ended).toEqual([200, 404, 'upstream-unreachable']);
});

test('a next version that waits is tried again when other processes may have done so', async () => {
  const scene = await warm();
  const next = { ...credential, version: '8', username: 'new' };
  scene.replies.push(challenge('n2'), challenge('n3'));
  scene.credential.offer({ name: 'main', current: credential, next });
  await until(() => scene.events.includes('version 8 waiting'));
  scene.clock.at += WAITING_MS;
  scene.replies.push(challenge('n4'), answered());
  await scene.credential.catchUp();
  await until(() => scene.version.version === '8');
  expect(scene.sent.slice(2)).toEqual(['HEAD /x', 'HEAD /x n4:1 new']);
});

describe('an operator’s test', () => {
  test('of the version in use: one refusal is not enough, and the gateway asks once more', async () => {
    const scene = await warm({ attemptsWhenRefused: 9 });
    const probed = held(challenge('n5'));
    scene.replies.push(challenge('n2'), challenge('n3'), challenge('n4'), probed.reply);
    scene.replies.push(challenge('n6'), challenge('n7'), challenge('n8'), challenge('n9'));
    expect(await scene.credential.test('7', '/x', scene.transport)).toBe('refused');
    expect(scene.health.refused).toBe(false);
    await probed.came;
    // Another one meanwhile adds nothing.
    expect(await scene.credential.test('7', '/x', scene.transport)).toBe('refused');
    probed.release();
    await until(() => scene.health.refused);
    expect(scene.sent).toHaveLength(6);
  });

  test('of another version: one refusal is enough, and what is accepted waits for the operator', async () => {
    const scene = await warm(OTHER);
    const { credential: tested, transport, events } = scene;
    tested.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
    scene.replies.push(challenge('n2'), answered());
    expect(await tested.test('6', '/x', transport)).toBe('accepted');
    expect(scene.version.version).toBe('7');
    scene.replies.push(challenge('n3'), challenge('n4'));
    expect(await tested.test('6', '/x', transport)).toBe('refused');
    expect(events).toContain('version 6 refused');
  });

  test('without a response leaves a refused version refused', async () => {
    const scene = await warm();
    scene.credential.versions.refuse(scene.version, scene.health.attempt(), 'verdict');
    scene.replies.push(lost(), lost());
    expect(await scene.credential.test('7', '/x', scene.transport)).toBe('unclear');
    expect(scene.events).not.toContain('version 7 accepted');
  });

  test('over connections that are gone shows nothing', async () => {
    const scene = await warm();
    await scene.credential.versions.detach(scene.transport);
    expect(await scene.credential.test('7', '/x', scene.transport)).toBe('unclear');
  });
});

test('an operator tests and promotes versions by name', async () => {
  const scene = await warm(OTHER);
  const { credential: tested, transport } = scene;
  expect([await tested.test('99', '/', transport), scene.sent]).toEqual(['unknown', []]);
  tested.promote('99');
  tested.promote('7');
  expect([scene.version.version, scene.health.accepted]).toEqual(['7', true]);
  scene.replies.push(challenge('n2'), answered());
  expect(await tested.test('6', '/', transport)).toBe('accepted');
  expect(scene.version.version).toBe('7');
  tested.promote('6');
  expect(scene.version.version).toBe('6');
});
