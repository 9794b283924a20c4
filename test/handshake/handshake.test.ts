import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import type { RequestBody } from '../../src/handshake/exchange.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import {
  answered,
  challenge,
  delayed,
  HandshakeScene,
  held,
  lost,
  ScriptedSource,
  stale,
  unauthorized,
} from './scene.ts';

/** A body that is not kept. */
function streamed(): RequestBody {
  async function* chunks(): AsyncGenerator<Buffer> {
    yield Buffer.from('body');
  }
  return { kind: 'streamed', content: chunks(), spilled: false };
}

const POST = { method: 'POST', headers: ['Content-Length', '4', 'x-a', 'b'] };

describe('without a nonce', () => {
  test('the request is sent as it is, and again with an answer to the challenge', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n1:1']);
    expect(scene.events).toEqual(['attempt challenged', 'challenge cold']);
    expect(scene.facts).toMatchObject({
      ...{ attempts: 2, challenged: true, firstAttemptAt: scene.clock.at, upstreamAddress: 'upstream:80' },
      credential: { name: 'main', version: '7' },
    });
    expect(scene.responses.map(({ status, isWhole }) => [status, isWhole])).toEqual([[200, true]]);
  });

  describe('a nonce that was left to another process and is issued once more', () => {
    const left = async (): Promise<HandshakeScene> => {
      const scene = new HandshakeScene();
      await scene.warmUp();
      await scene.credential.versions.detach(scene.transport);
      scene.credential.versions.attach(scene.transport);
      return scene;
    };

    test('is not answered, and the request asks for another one', async () => {
      const scene = await left();
      scene.replies.push(challenge('n1'), challenge('n1'), challenge('n2'), answered());
      expect(await scene.send()).toBe('answered');
      expect(scene.sent).toEqual([...Array(3).fill('GET /x'), 'GET /x n2:1']);
    });

    test('ends the request with an error if no other one comes', async () => {
      const scene = await left();
      scene.replies.push(...Array.from({ length: 20 }, () => challenge('n1')));
      expect(await scene.send()).toBe('upstream-protocol');
      expect(scene.sent).toEqual(Array(9).fill('GET /x'));
      expect(scene.error?.message).toContain('left to another');
    });
  });

  test('the next request uses the nonce that was accepted', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(answered());
    await scene.send({ target: '/y' });
    expect(scene.sent).toEqual(['GET /y n1:2']);
    expect(scene.events).toEqual([]);
  });

  test('an upstream that asks for nothing is answered without authentication', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(answered());
    expect(await scene.send()).toBe('answered');
    expect([scene.sent, scene.events]).toEqual([['GET /x'], []]);
    expect(scene.facts.credential).toBeUndefined();
  });

  test('requests wait for the challenge of the first, and use its nonce', async () => {
    const scene = new HandshakeScene();
    const first = held(challenge('n1'));
    scene.replies.push(first.reply, answered(), answered());
    const outcomes = [scene.send({ target: '/a' }), scene.send({ target: '/b' })];
    await first.came;
    expect(scene.sent).toEqual(['GET /a']);
    first.release();
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
    expect(scene.sent).toEqual(['GET /a', 'GET /a n1:1', 'GET /b n1:2']);
  });

  test('requests that wait go on when the upstream asks for nothing, at the head of its response', async () => {
    const scene = new HandshakeScene();
    const streaming = new UpstreamResponse(200, '', [], true, new ScriptedSource());
    scene.replies.push(() => streaming, answered());
    const outcomes = [scene.send({ target: '/a' }), scene.send({ target: '/b' })];
    expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
    expect([scene.responses[0] === streaming, streaming.isWhole]).toEqual([true, false]);
    expect(scene.sent).toEqual(['GET /a', 'GET /b']);
  });

  test('all requests that wait go on at once when the upstream asks for nothing', async () => {
    const scene = new HandshakeScene();
    const [first, second] = [held(answered()), held(answered())];
    scene.replies.push(first.reply, second.reply, answered());
    const [a, b, c] = ['/a', '/b', '/c'].map((target) => scene.handshake({ target }));
    await first.came;
    first.release();
    await second.came;
    await new Promise(setImmediate);
    expect(scene.sent).toEqual(['GET /a', 'GET /b', 'GET /c']);
    second.release();
    expect(await Promise.all([a, b, c])).toEqual(['response', 'response', 'response']);
  });

  test('the first who waits obtains a challenge when that of another failed', async () => {
    const scene = new HandshakeScene();
    const first = held(lost({ broke: false }));
    scene.replies.push(first.reply, challenge('n1'), answered());
    const failing = scene.send({ target: '/a' });
    const waiting = scene.send({ target: '/b' });
    await first.came;
    first.release();
    expect(await Promise.all([failing, waiting])).toEqual(['upstream-unreachable', 'answered']);
    expect(scene.sent).toEqual(['GET /a', 'GET /b', 'GET /b n1:1']);
  });

  test('a request that is cancelled while it waits ends at once', async () => {
    const scene = new HandshakeScene();
    const first = held(challenge('n1'));
    scene.replies.push(first.reply, answered());
    const outcome = scene.send({ target: '/a' });
    const cancellation = new Cancellation();
    const other = scene.send({ target: '/b', cancellation });
    await first.came;
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await other).toBe('client-closed');
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent).toEqual(['GET /a', 'GET /a n1:1']);
  });

  test('cookies of the challenge come back with the answer', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1', 'qop="auth"', ['a=b; Path=/', 'c=d']), answered());
    await scene.send();
    expect(scene.messages.map(({ headers }) => headers.slice(-2).join('='))).toEqual(['', 'cookie=a=b; c=d']);
  });

  test.each(['Basic realm="r"', ''])('a 401 with %j cannot be answered', async (line) => {
    const scene = new HandshakeScene();
    scene.replies.push(unauthorized(...(line === '' ? [] : [line])));
    expect(await scene.send()).toBe('upstream-no-digest');
    expect(scene.events).toEqual(['attempt challenged']);
  });

  test('a nonce that serves once is obtained for each request', async () => {
    const scene = new HandshakeScene({ policy: 'single-use' });
    await scene.warmUp('n1');
    scene.replies.push(challenge('n2'), answered());
    await scene.send();
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1']);
    expect(scene.events).toContain('challenge single_use');
  });
});

describe('the attempts that are left', () => {
  test('are one: no known nonce is used, which may cost it', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    const budget = new AttemptBudget('GET');
    budget.answered = 1;
    scene.replies.push(challenge('n2'), answered());
    await scene.send({}, budget);
    expect(scene.sent).toEqual(['GET /x', 'GET /x n2:1']);
    expect(scene.events).toContain('challenge stale');
  });

  test.each([
    [1, ['GET /x', 'GET /x n2:1']],
    [2, ['GET /x n1:2', 'GET /x n2:1']],
  ])('are %i: no more are made', async (attempts, sent) => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(...(attempts === 1 ? [challenge('n2'), stale('n3')] : [stale('n2'), stale('n3')]));
    const budget = new AttemptBudget('GET', undefined, attempts);
    expect(await scene.send({}, budget)).toBe('upstream-protocol');
    expect([scene.sent, budget.left]).toEqual([sent, 0]);
  });

  test('are fewer by one that was accepted, and by none without authentication', async () => {
    const scene = new HandshakeScene();
    const budget = new AttemptBudget('GET');
    scene.replies.push(answered(), challenge('n1'), answered());
    expect([await scene.handshake({}, {}, budget), budget.answered]).toEqual(['response', 0]);
    expect([await scene.handshake({}, {}, budget), budget.answered]).toEqual(['response', 1]);
  });
});

describe('a nonce that the upstream calls stale', () => {
  test('costs one more exchange, without a further challenge', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(stale('n2'), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x n2:1']);
    expect(scene.events.slice(0, 2)).toEqual(['attempt stale', 'challenge stale']);
    expect(scene.health.accepted).toBe(true);
  });

  test('is not used again by others', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(stale('n2'), answered(), answered());
    await scene.send();
    await scene.send();
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x n2:1', 'GET /x n2:2']);
  });

  test('twice: the upstream calls each nonce stale', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'), stale('n3'));
    expect(await scene.send()).toBe('upstream-protocol');
    expect(scene.sent).toEqual(['GET /x', 'GET /x n1:1', 'GET /x n2:1']);
    expect([scene.health.refused, scene.error?.detail]).toEqual([false, expect.stringContaining('stale')]);
  });

  test('is answered by the new one even after a long round trip', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(delayed(scene, 5_000, stale('n2')), answered());
    await scene.send();
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x n2:1']);
  });
});

test.each([
  ['own nonce is refused', challenge('n1'), challenge('n2'), [true, false]],
  ['own nonce is called stale', challenge('n1'), stale('n2'), [false, true]],
  ['own nonce is accepted', challenge('n1'), answered(), [false, false]],
])('it is noted of a request whether its %s', async (_what, first, second, noted) => {
  const scene = new HandshakeScene();
  scene.replies.push(first, second, answered());
  const budget = new AttemptBudget('GET');
  await scene.handshake({}, {}, budget);
  expect([budget.ownRefused, budget.ownStale]).toEqual(noted);
});

test('that a known nonce is called stale is not noted of a request as of its own', async () => {
  const scene = new HandshakeScene();
  await scene.warmUp();
  scene.replies.push(stale('n2'), answered());
  const budget = new AttemptBudget('GET');
  await scene.handshake({}, {}, budget);
  expect([budget.ownRefused, budget.ownStale]).toEqual([false, false]);
});

describe('a version that is refused or in doubt', () => {
  const inDoubt = ({ health }: HandshakeScene): void => {
    health.inDoubt = true;
  };
  const refused = ({ health }: HandshakeScene): void => {
    health.refuse(health.attempt());
  };

  test.each([
    ['in doubt', inDoubt],
    ['refused', refused],
  ])('%s: reaches the upstream no more, but to find out', async (_what, happen) => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    happen(scene);
    expect([await scene.handshake(), await scene.handshake({ body: streamed() })]).toEqual([
      'interrupted',
      'interrupted',
    ]);
    expect(scene.sent).toEqual([]);
    scene.replies.push(answered());
    expect([await scene.handshake({}, { verifies: true }), scene.sent]).toEqual([
      'response',
      ['GET /x n1:2'],
    ]);
  });

  test('in doubt: a request that has waited long enough goes out', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    inDoubt(scene);
    scene.replies.push(answered());
    expect(await scene.handshake({}, { ignoresDoubt: true })).toBe('response');
  });

  test('while a challenge is obtained: it is not answered', async () => {
    const scene = new HandshakeScene();
    scene.replies.push((...args) => {
      inDoubt(scene);
      return challenge('n1')(...args);
    });
    expect([await scene.handshake(), scene.sent]).toEqual(['interrupted', ['GET /x']]);
  });

  test('while a request waits for a connection: nothing of it leaves', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    const refusal = (): undefined => refused(scene) as undefined;
    const budget = new AttemptBudget('GET');
    expect(await scene.handshake({ refusal }, {}, budget)).toBe('interrupted');
    expect([scene.sent, budget.answered, scene.pool.reserve()]).toEqual([[], 0, undefined]);
  });

  test('another error than that ends the request', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    const refusal = (): GatewayError => new GatewayError('upstream-circuit-open', 'later');
    expect(await scene.send({ refusal })).toBe('upstream-circuit-open');
    expect(scene.sent).toEqual([]);
  });
});

describe('a refusal', () => {
  const facts = ['isOwn', 'isStale', 'isNamedAgain', 'isEvidence', 'isGoodNonce'] as const;

  test.each([
    ['of a known nonce', true, 'n2', []],
    ['of a nonce of the request', false, 'n2', ['isOwn', 'isEvidence', 'isGoodNonce']],
    ['of a nonce of the request, which it names again', false, 'n1', ['isOwn', 'isNamedAgain']],
  ] as const)('%s is returned with its facts', async (_what, isKnown, next, expected) => {
    const scene = new HandshakeScene();
    if (isKnown) await scene.warmUp();
    scene.replies.push(...(isKnown ? [] : [challenge('n1')]), challenge(next));
    const refused = await scene.handshake();
    if (typeof refused === 'string') throw new Error(refused);
    expect(facts.filter((fact) => refused[fact])).toEqual(expected);
    expect([refused.challenge?.nonce, refused.inHand?.status]).toEqual([next, 401]);
  });

  test('goes on with the challenge in hand, with a nonce that was found good, or with one of its own', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(challenge('n2'), answered());
    const refused = await scene.handshake();
    if (typeof refused === 'string') throw new Error(refused);
    expect(await scene.handshake({}, { challenge: refused.inHand as UpstreamResponse })).toBe('response');
    scene.replies.push(answered(), challenge('n3'), answered());
    expect(await scene.handshake({}, { nonce: scene.pool.reserve() as Nonce })).toBe('response');
    expect(await scene.handshake({}, { freshNonce: true })).toBe('response');
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x n2:1', 'GET /x n2:2', 'GET /x', 'GET /x n3:1']);
  });
});

describe('an upstream that keeps state by opaque', () => {
  const withOpaque = 'qop="auth", opaque="o"';

  test('is asked again where another request used the nonce that was refused', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', withOpaque);
    const first = held(challenge('n2', `${withOpaque}, stale=true`));
    scene.replies.push(first.reply, answered(), challenge('n3', withOpaque), answered());
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' });
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent).toEqual(['GET /a n1:2', 'GET /b n1:3', 'GET /a', 'GET /a n3:1']);
  });

  test('is answered at once where nobody else did', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', withOpaque);
    scene.replies.push(challenge('n2', `${withOpaque}, stale=true`), answered());
    await scene.send();
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x n2:1']);
  });
});

describe('a response', () => {
  test.each([403, 429, 502, 503, 504])('%i says nothing of the credential', async (status) => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered(status));
    expect(await scene.send()).toBe('answered');
    expect(scene.health.accepted).toBe(false);
    expect(scene.events).toEqual(['attempt challenged', 'challenge cold']);
  });

  test('with a wrong proof is withheld', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered(200, 'rspauth="00"'));
    expect(await scene.send()).toBe('upstream-proof-invalid');
    expect(scene.responses).toEqual([]);
    expect(scene.events).toEqual(['attempt challenged', 'challenge cold', 'attempt error']);
  });

  test('names the nonce to use next', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered(200, 'nextnonce="n2"'), answered());
    await scene.send();
    await scene.send();
    expect(scene.sent.at(-1)).toBe('GET /x n2:1');
  });
});

describe('a connection that breaks', () => {
  test.each(['GET', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', 'PROPFIND', 'REPORT', 'SEARCH', 'QUERY'])(
    '%s is sent again on a new connection',
    async (method) => {
      const scene = new HandshakeScene();
      scene.replies.push(lost(), challenge('n1'), answered());
      expect(await scene.send({ method })).toBe('answered');
      expect(scene.sent).toEqual([`${method} /x`, `${method} /x fresh`, `${method} /x n1:1 fresh`]);
      expect(scene.events).toContain('attempt error');
    },
  );

  test.each(['POST', 'PATCH', 'LOCK', 'MOVE'])('%s is not, unless nothing of it was sent', async (method) => {
    const scene = new HandshakeScene();
    scene.replies.push(lost(), lost({ sent: false }), challenge('n1'), answered());
    expect(await scene.send({ method })).toBe('upstream-unreachable');
    expect(await scene.send({ method })).toBe('answered');
  });

  test('at an attempt with a known nonce: another one is used, since the upstream may have seen the count', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(lost(), challenge('n2'), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x n1:2', 'GET /x fresh', 'GET /x n2:1 fresh']);
  });

  test('at an attempt with a nonce without a count: it is used again', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', '');
    scene.replies.push(lost(), answered());
    await scene.send();
    expect(scene.sent).toEqual(['GET /x n1', 'GET /x n1 fresh']);
  });

  test('at an attempt with a nonce of the request: a new one is asked for', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), lost(), challenge('n2'), answered());
    await scene.send();
    expect(scene.sent).toEqual(['GET /x', 'GET /x n1:1', 'GET /x fresh', 'GET /x n2:1 fresh']);
    expect(scene.events.filter((event) => event.startsWith('challenge'))).toEqual([
      ...['challenge cold', 'challenge cold'],
    ]);
  });

  test('after an attempt that was answered: a new nonce is asked for', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp('n1', '');
    scene.replies.push(challenge('n2', 'stale=true'), lost(), challenge('n3', ''), answered());
    expect(await scene.send()).toBe('answered');
    expect(scene.sent).toEqual(['GET /x n1', 'GET /x n2', 'GET /x fresh', 'GET /x n3 fresh']);
  });

  test('at an attempt with a nonce of the request, while another one is known: a new one is asked for', async () => {
    const scene = new HandshakeScene();
    scene.health.accept(scene.health.attempt());
    const first = held(lost());
    scene.replies.push(
      challenge('n1'),
      first.reply,
      challenge('n2'),
      answered(),
      challenge('n3'),
      answered(),
    );
    const outcome = scene.send({ target: '/a' });
    await first.came;
    await scene.send({ target: '/b' }, new AttemptBudget('GET', undefined, 1));
    first.release();
    expect(await outcome).toBe('answered');
    expect(scene.sent.slice(-2)).toEqual(['GET /a fresh', 'GET /a n3:1 fresh']);
  });

  test('twice: the request fails with the error of the second', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(lost(), lost({ error: new GatewayError('upstream-timeout', 'late') }));
    expect(await scene.send()).toBe('upstream-timeout');
  });
});

test('a body that is kept goes out with each exchange', async () => {
  const scene = new HandshakeScene();
  const bytes = Buffer.from('body');
  scene.replies.push(challenge('n1'), stale('n2'), answered());
  expect(await scene.send({ ...POST, body: { kind: 'kept', content: bytes } })).toBe('answered');
  expect(scene.sent).toEqual(['POST /x', 'POST /x n1:1', 'POST /x n2:1']);
  expect(scene.messages.map(({ body }) => body)).toEqual([bytes, bytes, bytes]);
});

test('a nonce that was left to another process before a request used it is not used', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(challenge('n1'), (...args) => {
    const result = answered()(...args);
    void scene.pool.handOver();
    return result;
  });
  scene.replies.push(challenge('n2'), answered());
  const outcomes = ['/a', '/b'].map((target) => scene.send({ target }));
  expect(await Promise.all(outcomes)).toEqual(['answered', 'answered']);
  expect(scene.sent).toEqual(['GET /a', 'GET /a n1:1', 'GET /b', 'GET /b n2:1']);
});

describe('a body that is not kept', () => {
  test('is sent once, after a challenge was obtained with a request without effects', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), answered());
    const body = streamed();
    expect(await scene.send({ ...POST, body })).toBe('answered');
    expect(scene.sent).toEqual(['HEAD /x', 'POST /x n1:1']);
    const [asking, sending] = scene.messages;
    expect([asking?.headers, asking?.body]).toEqual([['x-a', 'b'], null]);
    expect(sending?.headers.slice(0, 4)).toEqual(POST.headers);
    expect(sending?.body).toBe(body.content);
  });

  test('the response to the request without effects does not reach the client', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(answered(), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('answered');
    expect(scene.sent).toEqual(['HEAD /x', 'POST /x']);
    expect(scene.messages.map(({ body }) => body === null)).toEqual([true, false]);
    expect([scene.facts.attempts, scene.facts.challenged, scene.responses.length]).toEqual([2, false, 1]);
  });

  test.each([
    ['is not supported', answered(405), ''],
    ['is redirected', answered(302), ''],
    ['finds nothing', answered(404), ''],
    ['gets a 401 without a challenge', unauthorized(), ''],
    ['breaks the connection', lost(), ' fresh'],
  ])('is asked for with the same method and no body if HEAD %s', async (_what, reply, fresh) => {
    const scene = new HandshakeScene();
    scene.replies.push(reply, challenge('n1'), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('answered');
    expect(scene.sent).toEqual(['HEAD /x', `POST /x${fresh}`, `POST /x n1:1${fresh}`]);
    expect([scene.messages[1]?.headers, scene.messages[1]?.body]).toEqual([['x-a', 'b'], null]);
  });

  test('is not sent if the same method gets no challenge either', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(unauthorized(), unauthorized('Basic realm="r"'));
    expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-no-digest');
    expect(scene.sent).toEqual(['HEAD /x', 'POST /x']);
  });

  test.each(['Basic realm="r"', 'Digest realm="r", nonce="n", algorithm=MD4'])(
    'is not sent, nor the method without it, if HEAD gets %s',
    async (line) => {
      const scene = new HandshakeScene();
      scene.replies.push(unauthorized(line), answered());
      expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-no-digest');
      expect(scene.sent).toEqual(['HEAD /x']);
    },
  );

  test('is sent with a known nonce if the upstream asks for nothing for the requests without it', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(answered(), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('answered');
    expect(scene.sent).toEqual(['HEAD /x', 'POST /x n1:2']);
  });

  test.each([
    ['accepted twice, the last time just now, is sent at once', 2, 999, ['POST /x n1:3']],
    ['accepted twice, but a second ago, is asked for', 2, 1_000, ['HEAD /x', 'POST /x n2:1']],
    ['accepted once, which may serve once only, is asked for', 1, 0, ['HEAD /x', 'POST /x n2:1']],
  ])('with a nonce that was %s', async (_what, uses, ms, sent) => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    if (uses === 2) scene.replies.push(answered());
    if (uses === 2) await scene.send();
    scene.sent.length = 0;
    scene.clock.at += ms;
    scene.replies.push(...(sent.length === 1 ? [answered()] : [challenge('n2'), answered()]));
    expect(await scene.send({ ...POST, body: streamed() })).toBe('answered');
    expect(scene.sent).toEqual(sent);
  });

  test('that was sent with a healthy nonce, which was refused, cannot be sent again', async () => {
    const scene = new HandshakeScene();
    await scene.warmUp();
    scene.replies.push(answered(), stale('n2'), answered());
    await scene.send();
    expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-protocol');
    // Its challenge serves the next request.
    expect(await scene.send(POST)).toBe('answered');
    expect(scene.sent.slice(1)).toEqual(['POST /x n1:3', 'POST /x n2:1']);
    // It says nothing of nonces of HEAD.
    scene.replies.push(challenge('n3'), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('answered');
    expect(scene.sent.slice(3)).toEqual(['HEAD /x', 'POST /x n3:1']);
  });

  test.each(['auto', 'single-use'] as const)(
    'that meets a 401 all the same leaves the challenge to the next request: %s',
    async (policy) => {
      const scene = new HandshakeScene({ policy });
      scene.replies.push(answered(), challenge('n1'), answered());
      expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-protocol');
      expect(await scene.send(POST)).toBe('answered');
      expect(scene.sent.slice(1)).toEqual(['POST /x', 'POST /x n1:1']);
    },
  );

  test.each(['auto', 'single-use'] as const)(
    'is asked for with the same method, once that is known to want authentication where HEAD does not: %s',
    async (policy) => {
      const scene = new HandshakeScene({ policy });
      scene.replies.push(answered(), challenge('n1'));
      expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-protocol');
      scene.replies.push(answered(), challenge('n2'), answered());
      expect(await scene.send({ ...POST, target: '/x?again', body: streamed() })).toBe('answered');
      expect(scene.sent.slice(2)).toEqual(['HEAD /x?again', 'POST /x?again', 'POST /x?again n2:1']);
    },
  );

  test('cannot be sent again when the upstream asks for authentication after it', async () => {
    const scene = new HandshakeScene();
    const budget = new AttemptBudget('GET');
    scene.replies.push(answered(), challenge('n1'));
    expect(await scene.send({ ...POST, body: streamed() }, budget)).toBe('upstream-protocol');
    expect(budget.bodySent).toBe(true);
  });

  test('is no way to find out about the credential if the upstream refuses the target', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n2'), challenge('n3'), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-target-refused');
    expect(scene.sent).toEqual(['HEAD /x', 'POST /x n1:1', 'HEAD /neutral', 'HEAD /neutral n3:1']);
  });

  test('cannot be sent again when its nonce was stale', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'));
    expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-protocol');
    expect(scene.sent).toHaveLength(2);
    expect(scene.error?.detail).toContain('after the body was sent');
  });

  test.each([
    ['the same method behind HEAD', [challenge('n4')], ['POST /y n4:1']],
    ['HEAD again if the method gets an error', [answered(400), challenge('n5')], ['HEAD /y', 'POST /y n5:1']],
    ['HEAD again if it gets no challenge', [unauthorized(), challenge('n5')], ['HEAD /y', 'POST /y n5:1']],
  ])('is asked for with %s, once a nonce of HEAD was refused', async (_what, replies, sent) => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'));
    await scene.send({ ...POST, body: streamed() });
    scene.replies.push(challenge('n3'), ...replies, answered());
    expect(await scene.send({ ...POST, target: '/y', body: streamed() })).toBe('answered');
    scene.replies.push(challenge('n6'), challenge('n7'), answered());
    expect(await scene.send({ ...POST, target: '/z', body: streamed() })).toBe('answered');
    const next = ['HEAD /z', 'POST /z', 'POST /z n7:1'];
    expect(scene.sent.slice(2)).toEqual(['HEAD /y', 'POST /y', ...sent, ...next]);
  });

  test('is asked for, although a known nonce is healthy, once a nonce of HEAD was refused', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'), answered(), answered());
    await scene.send({ ...POST, body: streamed() });
    await scene.send();
    await scene.send();
    expect(scene.pool.healthy).toBeDefined();
    scene.replies.push(challenge('n3'), challenge('n4'), answered());
    expect(await scene.send({ ...POST, client: 'other', body: streamed() })).toBe('answered');
    expect(scene.sent.slice(4)).toEqual(['HEAD /x', 'POST /x', 'POST /x n4:1']);
  });

  test('where HEAD is served says nothing of nonces of HEAD elsewhere', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'), answered(), answered());
    await scene.send({ ...POST, body: streamed() });
    expect(await scene.send({ ...POST, target: '/open', body: streamed() })).toBe('answered');
    scene.replies.push(challenge('n3'), challenge('n4'), answered());
    expect(await scene.send({ ...POST, target: '/y', body: streamed() })).toBe('answered');
    expect(scene.sent.slice(2, 4)).toEqual(['HEAD /open', 'POST /open n2:1']);
    expect(scene.sent.slice(4)).toEqual(['HEAD /y', 'POST /y', 'POST /y n4:1']);
  });

  test('is asked for with HEAD only, once a nonce of a GET was called stale', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'), answered());
    await scene.send();
    scene.replies.push(challenge('n3'), answered());
    expect(await scene.send({ ...POST, target: '/y', body: streamed() })).toBe('answered');
    expect(scene.sent.slice(3)).toEqual(['HEAD /y', 'POST /y n3:1']);
  });

  test('is asked for with HEAD only, once the upstream refused a target', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), challenge('n2'), challenge('n3'), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('upstream-target-refused');
    scene.replies.push(challenge('n4'), answered());
    expect(await scene.send({ ...POST, target: '/y', body: streamed() })).toBe('answered');
    expect(scene.sent.slice(4)).toEqual(['HEAD /y', 'POST /y n4:1']);
  });

  test('where the method is served although HEAD is not, acts without its body once for each nonce that was refused', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), stale('n2'));
    await scene.send({ ...POST, body: streamed() });
    for (const target of ['/x', '/y']) {
      scene.replies.push(challenge('n3'), answered(), answered());
      expect(await scene.send({ ...POST, target, body: streamed() })).toBe('answered');
    }
    expect(scene.sent.slice(2)).toEqual(['HEAD /x', 'POST /x', 'POST /x n2:1', 'HEAD /y', 'POST /y n3:1']);
  });

  test('is sent again if no byte of it was sent', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1'), lost({ sent: false }), challenge('n2'), answered());
    expect(await scene.send({ ...POST, body: streamed() })).toBe('answered');
    expect(scene.sent.at(-1)).toBe('POST /x n2:1 fresh');
    const used = new HandshakeScene();
    used.replies.push(challenge('n1'), lost());
    expect(await used.send({ ...POST, method: 'PUT', body: streamed() })).toBe('upstream-unreachable');
  });

  test('that the answer would have to cover ends the attempt with the nonce', async () => {
    const scene = new HandshakeScene();
    scene.replies.push(challenge('n1', 'qop="auth-int"'), answered(), answered());
    await scene.send();
    await scene.send();
    expect(await scene.send({ ...POST, body: streamed() })).toBe('body-too-large');
    expect(scene.pool.known?.lane).toEqual({ underWay: 0, begun: 3 });
  });

  test('counts as not sent when the credential was refused before it left', async () => {
    const scene = new HandshakeScene();
    const budget = new AttemptBudget('GET');
    let asked = 0;
    const refusal = (): undefined => {
      asked += 1;
      if (asked === 2) scene.health.refuse(scene.health.attempt());
    };
    scene.replies.push(challenge('n1'));
    const request = { ...POST, body: streamed(), refusal };
    expect(await scene.handshake(request, {}, budget)).toBe('interrupted');
    expect([scene.sent, budget.bodySent]).toEqual([['HEAD /x'], false]);
  });
});

test('tells the exchange for whom a request is, and how long it may take', async () => {
  const scene = new HandshakeScene();
  const cancellation = new Cancellation();
  scene.replies.push(challenge('n1'), answered());
  await scene.send({ client: 'reporting', noTotalTimeout: true, cancellation });
  for (const { request, freshConnection } of scene.messages) {
    expect(request).toMatchObject({ client: 'reporting', noTotalTimeout: true });
    expect(freshConnection).toBe(false);
    expect(request.cancellation).toBe(cancellation);
  }
});
