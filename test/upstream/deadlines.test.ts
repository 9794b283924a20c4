import { Readable } from 'node:stream';
import { expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import type { BodySource } from '../../src/transport/request-body.ts';
import { ActiveRequest, Deadlines } from '../../src/upstream/client-request.ts';
import { noFacts } from '../handshake/scene.ts';
import { until } from '../support/until.ts';

const MS = 50;

const BODY = { length: 1, open: () => new Readable(), framing: () => 0, onBytes() {} };

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
