import { expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { Deadlines } from '../../src/upstream/deadlines.ts';
import { until } from '../support/until.ts';

const MS = 50;

const codeOf = ({ reason }: Cancellation): string | undefined => reason?.code;

test('cancels a request that is not over in time, and none that is', async () => {
  const deadlines = new Deadlines(MS, monotonicClock);
  const begun = monotonicClock.now();
  const [ended, first, second] = [new Cancellation(), new Cancellation(), new Cancellation()];
  deadlines.end(deadlines.begin(ended, false, monotonicClock.now()));
  deadlines.begin(first, false, monotonicClock.now());
  deadlines.begin(second, false, monotonicClock.now());
  await until(() => second.reason !== undefined);
  expect(monotonicClock.now() - begun).toBeGreaterThanOrEqual(MS);
  expect([ended, first, second].map(codeOf)).toEqual([undefined, 'upstream-timeout', 'upstream-timeout']);
});

test('serves requests that begin after all others are over', async () => {
  const deadlines = new Deadlines(MS, monotonicClock);
  for (let round = 1; round <= 2; round += 1) {
    const cancellation = new Cancellation();
    const begun = monotonicClock.now();
    deadlines.begin(cancellation, false, monotonicClock.now());
    await until(() => cancellation.reason !== undefined);
    expect(monotonicClock.now() - begun).toBeGreaterThanOrEqual(MS);
  }
});

test('tells a slow client by a body that did not arrive', async () => {
  const deadlines = new Deadlines(MS, monotonicClock);
  const cancellation = new Cancellation();
  deadlines.begin(cancellation, true, monotonicClock.now());
  await until(() => cancellation.reason !== undefined);
  expect(codeOf(cancellation)).toBe('request-timeout');
});
