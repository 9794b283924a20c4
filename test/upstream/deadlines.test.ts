import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import type { BodySource } from '../../src/transport/request-body.ts';
import { ActiveRequest, Deadlines } from '../../src/upstream/client-request.ts';
import { noFacts } from '../handshake/scene.ts';
import { until } from '../support/until.ts';

const MS = 50;

const BODY = {
  length: 1,
  expectsContinue: false,
  open: () => new Readable(),
  framing: () => 0,
  onBytes() {},
};

const requestOf = (cancellation: Cancellation, source?: BodySource): ActiveRequest => {
  const facts = { ...noFacts(), client: '', method: 'PUT', trace: undefined };
  const toSend = { target: '/', headers: [], noTotalTimeout: false };
  const retries = { attempts: 0, take: () => false, count() {} };
  return new ActiveRequest(facts, toSend, source, { information() {} }, cancellation, retries);
};

const codeOf = ({ reason }: Cancellation): string | undefined => reason?.code;

test('cancels a request that is not over in time, and none that is', async () => {
  const deadlines = new Deadlines(MS, monotonicClock);
  const begun = monotonicClock.now();
  const [ended, first, second] = [new Cancellation(), new Cancellation(), new Cancellation()];
  const over = requestOf(ended);
  deadlines.begin(over, begun);
  deadlines.end(over);
  deadlines.begin(requestOf(first), begun);
  deadlines.begin(requestOf(second), begun);
  await until(() => second.reason !== undefined);
  expect(monotonicClock.now() - begun).toBeGreaterThanOrEqual(MS);
  expect([ended, first, second].map(codeOf)).toEqual([undefined, 'upstream-timeout', 'upstream-timeout']);
});

test('serves requests that begin after all others are over', async () => {
  const deadlines = new Deadlines(MS, monotonicClock);
  for (let round = 1; round <= 2; round += 1) {
    const cancellation = new Cancellation();
    const begun = monotonicClock.now();
    deadlines.begin(requestOf(cancellation), begun);
    await until(() => cancellation.reason !== undefined);
    expect(monotonicClock.now() - begun).toBeGreaterThanOrEqual(MS);
  }
});

test('tells a slow client by a body that did not arrive', async () => {
  const deadlines = new Deadlines(MS, monotonicClock);
  const cancellation = new Cancellation();
  deadlines.begin(requestOf(cancellation, BODY), monotonicClock.now());
  await until(() => cancellation.reason !== undefined);
  expect(codeOf(cancellation)).toBe('request-timeout');
});

describe('with time that a test moves', () => {
  beforeEach(() => {
    jest.useFakeTimers();
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  test('each request has its whole time, and one timer serves them all', () => {
    const deadlines = new Deadlines(1_000, performance);
    const [first, second] = [new Cancellation(), new Cancellation()];
    deadlines.begin(requestOf(first), performance.now());
    jest.advanceTimersByTime(400);
    deadlines.begin(requestOf(second), performance.now());
    const seen: unknown[] = [];
    for (const ms of [599, 1, 399, 1]) {
      expect(jest.getTimerCount()).toBe(1);
      jest.advanceTimersByTime(ms);
      seen.push([first, second].map(codeOf));
    }
    expect(seen).toEqual([
      [undefined, undefined],
      ['upstream-timeout', undefined],
      ['upstream-timeout', undefined],
      ['upstream-timeout', 'upstream-timeout'],
    ]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test.each<[string, ActiveRequest['body'], string]>([
    [
      'whose body was received waits for the upstream',
      { kind: 'kept' } as ActiveRequest['body'],
      'upstream-timeout',
    ],
    ['whose body the client sends too slowly waits for it', streamed(true), 'request-timeout'],
    ['whose body the upstream takes too slowly waits for that', streamed(false), 'upstream-timeout'],
  ])('a request %s', (_what, body, code) => {
    const deadlines = new Deadlines(1_000, performance);
    const cancellation = new Cancellation();
    deadlines.begin(Object.assign(requestOf(cancellation, BODY), { body }), performance.now());
    jest.advanceTimersByTime(1_000);
    expect(codeOf(cancellation)).toBe(code);
  });
});

function streamed(awaitsClient: boolean): ActiveRequest['body'] {
  return { kind: 'streamed', progress: { awaitsClient } } as ActiveRequest['body'];
}
