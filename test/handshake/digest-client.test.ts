import { afterEach, describe, expect, test } from '@jest/globals';
import { propagation, ROOT_CONTEXT, SpanKind } from '@opentelemetry/api';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { attemptsOnly, discardResponse } from '../../src/handshake/response-handler.ts';
import { TracedWork } from '../../src/tracing/tracing.ts';
import { recordTraces } from '../support/recorded-traces.ts';
import { answered, challenge, HandshakeScene, held, lost } from './scene.ts';

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

  test.each([true, false])('goes on at the upstream: %p', async (forwardTrace) => {
    const scene = new HandshakeScene({ options: { tracing: { deployment: 'd', forwardTrace } } });
    const { trace, spans } = traced();
    scene.replies.push(answered());
    await scene.send({ trace, headers: ['x-a', 'b'] });
    const exchange = spans.find(({ name }) => name === 'exchange');
    const forwarded = ['traceparent', `00-${exchange?.traceId}-${exchange?.id}-01`];
    expect(scene.requests[0]?.headers).toEqual(['x-a', 'b', ...(forwardTrace ? forwarded : [])]);
  });

  test('has the code of an error, and of a request that was cancelled while it waited', async () => {
    const scene = new HandshakeScene();
    const { trace, spans } = traced();
    const first = held(lost({ error: new GatewayError('upstream-tls', 'no trust'), broke: false }));
    const cancellation = new Cancellation();
    scene.replies.push(first.reply, () => {
      throw new GatewayError('upstream-timeout', 'late');
    });
    const failing = scene.send({ trace });
    await first.came;
    const waiting = scene.send({ trace }, { cancellation });
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await waiting).toBe('upstream-timeout');
    first.release();
    expect(await failing).toBe('upstream-tls');
    expect(spans.map(({ name, attributes }) => [name, attributes['error.type']])).toEqual([
      ...[
        ['challenge', undefined],
        ['challenge', 'client-closed'],
      ],
      ...[
        ['exchange', 'upstream-timeout'],
        ['exchange', 'upstream-tls'],
      ],
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
  const { client } = new HandshakeScene({ options: { algorithms: ['MD5'] } });
  const lines = ['SHA-256', 'MD5'].map((name) => `Digest realm="r", nonce="${name}", algorithm=${name}`);
  expect(client.choose(lines)?.nonce).toBe('MD5');
  expect(client.choose(lines.slice(0, 1))).toBeUndefined();
});

test('a credential that was refused keeps further attempts from the upstream', () => {
  const { client } = new HandshakeScene();
  expect(client.refusal()).toBeUndefined();
  client.health.refuse(client.health.attempt());
  expect(client.refusal()?.code).toBe('upstream-credential-refused');
});

test('of a response that is discarded, attempts and challenges alone are told', () => {
  const scene = new HandshakeScene();
  const handler = attemptsOnly(scene.handler);
  handler.attempt({ name: 'main', version: '7' }, 'upstream:80');
  handler.challenged();
  handler.information(103, []);
  handler.head(200, 'OK', [], true);
  handler.end([]);
  expect(scene.response).toEqual(['attempt main 7 upstream:80', 'challenged']);
  expect([handler.data(Buffer.from('x')), discardResponse.data(Buffer.from('x'))]).toEqual([true, true]);
});
