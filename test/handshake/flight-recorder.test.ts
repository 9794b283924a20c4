import { expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { Nonce } from '../../src/challenges/nonce.ts';
import { type Challenge, parseChallenges } from '../../src/digest/challenge.ts';
import { type AnsweredNonce, NO_BODY } from '../../src/handshake/exchange.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { type Lost, UpstreamResponse } from '../../src/handshake/response.ts';
import { credential, noFacts } from './scene.ts';

const MAIN = { deployment: 'd', credential: 'main', owner: 1 };
const NONCE = 'nonce-of-the-upstream';
const [CHALLENGE] = parseChallenges([`Digest realm="realm-of-somebody", nonce="${NONCE}", qop="auth"`]);
const ANSWERS = {
  nonce: new Nonce({ challenge: CHALLENGE as Challenge, cookies: [] }, credential, {
    cnonce: 'c',
    obtainedAt: 0,
  }),
  nc: 42,
};

function response(status: number, headers: readonly string[]): UpstreamResponse {
  return new UpstreamResponse(status, '', [...headers], true, undefined);
}

function scene({ maxEvents = 100, maxChanges = 100 } = {}) {
  let now = 1_000;
  const clock = { now: () => now };
  const recorder = new FlightRecorder({ clock, worker: 3, maxEvents, maxChanges });
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
  const tick = (ms: number): void => {
    now += ms;
  };
  const send = (
    ms: number,
    result: UpstreamResponse | Lost | GatewayError,
    answers?: AnsweredNonce,
  ): void => {
    const place = { deployment: 'd', address: 'upstream:80' };
    const event = recorder.sent(place, { request, method: 'GET', answers });
    tick(ms);
    if (result instanceof GatewayError) recorder.failed(event, result);
    else recorder.received(event, result);
  };
  const lines = () => recorder.lines('asked').map((line) => JSON.parse(line));
  return { recorder, request, send, lines, tick };
}

test('a request and its exchanges are recorded with their times and results', () => {
  const { recorder, request, send, lines, tick } = scene();
  const event = recorder.request(MAIN, request);
  tick(1);
  const challenge = ['WWW-Authenticate', `Digest realm="r", nonce="${NONCE}", qop="auth", stale=true`];
  send(5, response(401, challenge));
  send(7, response(200, ['Authentication-Info', 'nextnonce="the-next-one"']), ANSWERS);
  recorder.ended(event, 200);
  const [head, first, asked, answered] = lines();
  expect(head).toMatchObject({ format: 2, reason: 'asked', worker: 3, isCut: false });
  expect(first).toMatchObject({ kind: 'request', at: 1_000, request: 1, ended: 1_013, result: 200 });
  expect(asked).toMatchObject({ request: 1, at: 1_001, ended: 1_006, nonce: '', result: 401, stale: true });
  expect(answered).toMatchObject({ request: 1, nonce: asked.offered, nc: 42, result: 200 });
  expect(answered.offered).not.toBe(asked.offered);
});

test('nothing of a client, a nonce or an answer is in a record', () => {
  const { recorder, request, send } = scene();
  recorder.ended(recorder.request(MAIN, request), 'upstream-timeout');
  send(1, response(401, ['www-authenticate', `Digest realm="r", nonce="${NONCE}"`]), ANSWERS);
  const text = recorder.lines('asked').join('\n');
  for (const part of [NONCE, 'somebody', 'secret', '00ff00ff', 'of-a-client'])
    expect(text).not.toContain(part);
});

test('losses and errors of exchanges are results', () => {
  const { send, lines } = scene();
  const error = new GatewayError('upstream-unreachable', 'It is gone.');
  send(1, { kind: 'lost', error, broke: true, sent: true, reused: false });
  send(1, new GatewayError('upstream-timeout', 'It was slow.'));
  expect(
    lines()
      .slice(1)
      .map(({ result }) => result),
  ).toEqual(['lost broke sent', 'upstream-timeout']);
});

test('the latest events stay, in the order in which they began', async () => {
  const { recorder, request, lines } = scene({ maxEvents: 3 });
  for (let count = 0; count < 8; count += 1) recorder.request(MAIN, request);
  const [head, ...events] = lines();
  expect(head.isCut).toBe(true);
  expect(events.map((event) => event.request)).toEqual([6, 7, 8]);
});

test('what comes of an event whose place another one has taken is left out', () => {
  const { recorder, request, send, lines } = scene({ maxEvents: 2 });
  const slow = recorder.request(MAIN, request);
  send(1, response(200, []), ANSWERS);
  send(1, response(401, ['www-authenticate', `Digest realm="r", nonce="${NONCE}"`]));
  recorder.ended(slow, 500);
  expect(lines().slice(1)).toMatchObject([
    { kind: 'exchange', nc: 42, result: 200, offered: '' },
    { kind: 'exchange', nc: 0, nonce: '', result: 401 },
  ]);
});

test('an event has nothing of the one that was in its place before', () => {
  const { recorder, request, send, lines } = scene({ maxEvents: 1 });
  send(1, response(401, ['www-authenticate', `Digest realm="r", nonce="${NONCE}", stale=true`]), ANSWERS);
  send(1, response(200, []));
  expect(lines()[1]).toMatchObject({ nonce: '', nc: 0, offered: '', stale: false, result: 200 });
  recorder.request(MAIN, request);
  expect(lines()[1]).toMatchObject({ kind: 'request', ended: 0, result: '' });
});

test('the head names the versions of a credential, also when their offer was dropped', () => {
  const { recorder, request, lines } = scene({ maxEvents: 2 });
  const version = { name: 'main', username: 'u', password: undefined, changedAt: undefined };
  const set = { name: 'main', current: { ...version, version: '4' }, next: { ...version, version: '5' } };
  recorder.offer(recorder.credential('d', 'main'), set as never, 2);
  for (let count = 0; count < 3; count += 1) recorder.request(MAIN, request);
  const [head] = lines();
  expect(head.credentials).toEqual([
    { deployment: 'd', credential: 'main', versions: ['4', '5'], attemptsWhenRefused: 2 },
  ]);
});

test('requests do not push out what became of a credential', () => {
  const { recorder, request, lines } = scene({ maxEvents: 2, maxChanges: 2 });
  const main = recorder.credential('d', 'main');
  recorder.note(main, 'accepted', ['4']);
  for (let count = 0; count < 3; count += 1) recorder.request(MAIN, request);
  recorder.note(main, 'reply', ['4'], { by: 'trial', result: 'refused', count: 2 });
  const [head, accepted, , , replied] = lines();
  expect(head).toMatchObject({ isCut: true, areChangesCut: false });
  expect(accepted).toMatchObject({
    kind: 'accepted',
    owner: 1,
    versions: ['4'],
    by: '',
    result: '',
    count: 0,
  });
  expect(replied).toMatchObject({ kind: 'reply', owner: 1, by: 'trial', result: 'refused', count: 2 });
  recorder.note(main, 'settled', ['4']);
  expect(lines()[0]).toMatchObject({ areChangesCut: true });
});

test('requests that fail one after the other as refused are one event', () => {
  const { recorder, lines } = scene();
  const [main, other] = [recorder.credential('d', 'main'), recorder.credential('d', 'other')];
  for (const each of [main, main, other, main]) recorder.note(each, 'failed', []);
  expect(
    lines()
      .slice(1)
      .map(({ owner }) => owner),
  ).toEqual([1, 2, 1]);
});
