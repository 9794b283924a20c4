import { afterEach, describe, expect, test } from '@jest/globals';
import { propagation, ROOT_CONTEXT, SpanKind } from '@opentelemetry/api';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { chooseChallenge } from '../../src/handshake/account.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { TracedWork } from '../../src/tracing/tracing.ts';
import { recordTraces } from '../support/recorded-traces.ts';
import { answered, challenge, delayed, HandshakeScene, held, lost, ScriptedSource } from './scene.ts';

afterEach(() => propagation.disable());

function traced() {
  const { tracer, spans } = recordTraces();
  return { trace: new TracedWork(tracer, 'request', SpanKind.SERVER, ROOT_CONTEXT, {}), spans };
}

describe('a trace', () => {
  test('has each exchange, the wait for a challenge, and what became of them', async () => {
    const scene = new HandshakeScene();
    const { trace, spans } = traced();
    scene.replies.push(challenge('n1'), answered(204));
    await scene.send({ trace });
    trace.end();
    const exchange = { 'http.request.method': 'GET', 'digest_gateway.deployment': 'd' };
    expect(spans.map(({ name, kind, attributes, events }) => ({ name, kind, attributes, events }))).toEqual([
      { name: 'challenge', kind: 'INTERNAL', attributes: {}, events: [] },
      {
        ...{ name: 'exchange', kind: 'CLIENT', events: [] },
        attributes: { ...exchange, 'digest_gateway.authenticated': false, 'http.response.status_code': 401 },
      },
      {
        ...{ name: 'exchange', kind: 'CLIENT', events: [] },
        attributes: { ...exchange, 'digest_gateway.authenticated': true, 'http.response.status_code': 204 },
      },
      { name: 'request', kind: 'SERVER', attributes: {}, events: ['challenge'] },
    ]);
  });

  test('has only what is signed as authenticated, whatever the values of headers are', async () => {
    const scene = new HandshakeScene();
    const { trace, spans } = traced();
    scene.replies.push(challenge('n1'), answered(204));
    await scene.send({ trace, headers: ['access-control-request-headers', 'authorization'] });
    trace.end();
    const exchanges = spans.filter(({ name }) => name === 'exchange');
    expect(exchanges.map(({ attributes }) => attributes['digest_gateway.authenticated'])).toEqual([
      false,
      true,
    ]);
  });

  test.each([true, false])('goes on at the upstream: %p', async (forwardTrace) => {
    const scene = new HandshakeScene({ options: { forwardTrace } });
    const { trace, spans } = traced();
    scene.replies.push(answered());
    await scene.send({ trace, headers: ['x-a', 'b'] });
    const exchange = spans.find(({ name }) => name === 'exchange');
    const forwarded = ['traceparent', `00-${exchange?.traceId}-${exchange?.id}-01`];
    expect(scene.messages[0]?.headers).toEqual(['x-a', 'b', ...(forwardTrace ? forwarded : [])]);
  });

  test('has the code of an error, and of a request that was cancelled while it waited', async () => {
    const scene = new HandshakeScene();
    const { trace, spans } = traced();
    const first = held(lost({ error: new GatewayError('upstream-tls', 'no trust'), broke: false }));
    const cancellation = new Cancellation();
    scene.replies.push(first.reply, () => {
      throw new GatewayError('upstream-timeout', 'late');
    });
    const failing = scene.handshake({ trace });
    await first.came;
    const waiting = scene.handshake({ trace, cancellation });
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    await expect(waiting).rejects.toMatchObject({ code: 'upstream-timeout' });
    first.release();
    await expect(failing).rejects.toMatchObject({ code: 'upstream-tls' });
    expect(spans.map(({ name, attributes }) => [name, attributes['error.type']])).toEqual([
      ['challenge', undefined],
      ['challenge', 'client-closed'],
      ['exchange', 'upstream-timeout'],
      ['exchange', 'upstream-tls'],
    ]);
  });
});

test('an exchange that fails counts as an error', async () => {
  const scene = new HandshakeScene();
  scene.replies.push(() => {
    throw new GatewayError('upstream-timeout', 'late');
  });
  expect(await scene.send()).toBe('upstream-timeout');
  expect(scene.events).toEqual(['attempt error']);
});

test('the algorithms of the deployment decide which challenge is answered', () => {
  const { account } = new HandshakeScene({ options: { algorithms: ['MD5'] } });
  const chosenOf = (...names: string[]): string | undefined => {
    const lines = names.map((name) => `Digest realm="r", nonce="${name}", algorithm=${name}`);
    const headers = lines.flatMap((line) => ['WWW-Authenticate', line]);
    return chooseChallenge(account, new UpstreamResponse(401, '', headers, true, undefined))?.nonce;
  };
  expect([chosenOf('SHA-256', 'MD5'), chosenOf('SHA-256')]).toEqual(['MD5', undefined]);
});

test.each([
  [true, 'with'],
  [false, 'without'],
  [undefined, 'without'],
])('a challenge without qop is passed over where it is required: %p', (requireQop, nonce) => {
  const { account } = new HandshakeScene();
  const lines = ['Digest realm="r", nonce="without"', 'Digest realm="r", nonce="with", qop="auth"'];
  const headers = lines.flatMap((line) => ['WWW-Authenticate', line]);
  const response = new UpstreamResponse(401, '', headers, true, undefined);
  const required = requireQop === undefined ? account : { ...account, requireQop };
  expect(chooseChallenge(required, response)?.nonce).toBe(nonce);
});

test('the facts of a request have the time of its first exchange', async () => {
  const scene = new HandshakeScene();
  const begun = scene.clock.at;
  scene.replies.push(delayed(scene, 5, challenge('n1')), answered());
  await scene.send();
  expect(scene.facts).toMatchObject({ attempts: 2, firstAttemptAt: begun });
});

test('a challenge is returned once its body was read', async () => {
  const scene = new HandshakeScene();
  const came = Promise.withResolvers<UpstreamResponse>();
  scene.replies.push(() => {
    const headers = ['WWW-Authenticate', 'Digest realm="r", nonce="n1", qop="auth"'];
    const unread = new UpstreamResponse(401, '', headers, true, new ScriptedSource());
    came.resolve(unread);
    return unread;
  }, answered());
  const outcome = scene.send();
  const unread = await came.promise;
  await new Promise(setImmediate);
  expect(scene.sent).toEqual(['GET /x']);
  unread.push(Buffer.from('no access'));
  unread.end([]);
  expect([await outcome, scene.sent]).toEqual(['answered', ['GET /x', 'GET /x n1:1']]);
});

test('a request that is cancelled while the body of a challenge is read ends with that', async () => {
  const scene = new HandshakeScene();
  const cancellation = new Cancellation();
  const gone = new GatewayError('client-closed', 'gone');
  scene.replies.push(() => {
    const unread = new UpstreamResponse(401, '', [], true, new ScriptedSource());
    cancellation.add({ cancel: (reason) => unread.fail(reason) });
    setImmediate(() => cancellation.cancel(gone));
    return unread;
  });
  expect(await scene.send({ cancellation })).toBe('client-closed');
  expect([scene.facts.challenged, scene.events]).toEqual([true, ['attempt error']]);
});
