import { expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { type Exchange, NO_BODY } from '../../src/handshake/exchange.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { FlightRecorder } from '../../src/upstream/flight-recorder.ts';
import { noFacts } from '../handshake/scene.ts';

const NONCE = 'nonce-of-the-upstream';
const ANSWER = `Digest username="user-of-somebody", realm="a, nc=00000009, realm", nonce="${NONCE}", uri="/secret-path", cnonce="c", nc=0000002a, qop=auth, response="00ff00ff"`;

function response(status: number, headers: readonly string[]): UpstreamResponse {
  return new UpstreamResponse(status, '', [...headers], true, undefined);
}

function scene({ maxEvents = 100 } = {}) {
  let now = 1_000;
  const clock = { now: () => now };
  const recorder = new FlightRecorder({ clock, worker: 3, maxEvents });
  const request = {
    method: 'GET',
    target: '/secret-path',
    headers: ['x-secret', 'of-a-client'],
    body: NO_BODY,
    cancellation: new Cancellation(),
    client: 'client-of-somebody',
    facts: noFacts(),
    trace: undefined,
  };
  const send = (inner: Exchange, answer?: string) => {
    const headers = answer === undefined ? request.headers : [...request.headers, 'authorization', answer];
    return recorder.exchange('d', 'upstream:80', inner)({ ...request, headers, body: null });
  };
  const lines = () => recorder.lines('asked').map((line) => JSON.parse(line));
  const tick = (ms: number): void => {
    now += ms;
  };
  return { recorder, request, send, lines, tick };
}

test('a request and its exchanges are recorded with their times and results', async () => {
  const { recorder, request, send, lines, tick } = scene();
  const event = recorder.request('d', 'main', request);
  tick(1);
  const challenge = ['WWW-Authenticate', `Digest realm="r", nonce="${NONCE}", qop="auth", stale=true`];
  await send(async () => {
    tick(5);
    return response(401, challenge);
  });
  await send(async () => {
    tick(7);
    return response(200, ['Authentication-Info', 'nextnonce="the-next-one"']);
  }, ANSWER);
  recorder.ended(event, response(200, []));
  const [head, first, asked, answered] = lines();
  expect(head).toMatchObject({ format: 1, reason: 'asked', worker: 3, isCut: false });
  expect(first).toMatchObject({ kind: 'request', at: 1_000, request: 1, ended: 1_013, result: 200 });
  expect(asked).toMatchObject({ request: 1, at: 1_001, ended: 1_006, nonce: '', result: 401, stale: true });
  expect(answered).toMatchObject({ request: 1, nonce: asked.offered, nc: 42, result: 200 });
  expect(answered.offered).not.toBe(asked.offered);
});

test('nothing of a client, a nonce or an answer is in a record', async () => {
  const { recorder, request, send } = scene();
  recorder.ended(recorder.request('d', 'main', request), new GatewayError('upstream-timeout', 'secret text'));
  await send(async () => response(401, ['www-authenticate', `Digest realm="r", nonce="${NONCE}"`]), ANSWER);
  const text = recorder.lines('asked').join('\n');
  for (const part of [NONCE, 'somebody', 'secret', '00ff00ff', 'of-a-client'])
    expect(text).not.toContain(part);
});

test('losses and errors of exchanges are results', async () => {
  const { send, lines } = scene();
  const error = new GatewayError('upstream-unreachable', 'It is gone.');
  await send(async () => ({ kind: 'lost', error, broke: true, sent: true, reused: false }));
  const failed = send(async () => {
    throw new GatewayError('upstream-timeout', 'It was slow.');
  });
  await expect(failed).rejects.toThrow('It was slow.');
  expect(
    lines()
      .slice(1)
      .map(({ result }) => result),
  ).toEqual(['lost broke sent', 'upstream-timeout']);
});

test('the latest events stay, in the order in which they began', async () => {
  const { recorder, request, lines } = scene({ maxEvents: 3 });
  for (let count = 0; count < 8; count += 1) recorder.request('d', 'main', request);
  const [head, ...events] = lines();
  expect(head.isCut).toBe(true);
  expect(events.map((event) => event.request)).toEqual([6, 7, 8]);
});

test('the head names the versions of a credential, also when their offer was dropped', () => {
  const { recorder, request, lines } = scene({ maxEvents: 2 });
  const version = { name: 'main', username: 'u', password: undefined, changedAt: undefined };
  const set = { name: 'main', current: { ...version, version: '4' }, next: { ...version, version: '5' } };
  recorder.offer('d', set as never, 2);
  for (let count = 0; count < 3; count += 1) recorder.request('d', 'main', request);
  const [head] = lines();
  expect(head.credentials).toEqual([
    { deployment: 'd', credential: 'main', versions: ['4', '5'], attemptsWhenRefused: 2 },
  ]);
});
