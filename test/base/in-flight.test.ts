import { expect, test } from '@jest/globals';
import { InFlight } from '../../src/base/in-flight.ts';

test('everyone who waits for the end of all uses gets it with the last one', async () => {
  const inFlight = new InFlight();
  await inFlight.idle();
  inFlight.enter();
  inFlight.enter();
  const events: string[] = [];
  const waiting = ['one', 'two'].map((name) => inFlight.idle().then(() => events.push(name)));
  inFlight.leave();
  await new Promise(setImmediate);
  events.push('last');
  inFlight.leave();
  await Promise.all(waiting);
  expect(events).toEqual(['last', 'one', 'two']);
});

test('a use that begins after all have ended is waited for, too', async () => {
  const inFlight = new InFlight();
  inFlight.enter();
  const first = inFlight.idle();
  inFlight.leave();
  await first;
  inFlight.enter();
  let isIdle = false;
  const second = inFlight.idle().then(() => {
    isIdle = true;
  });
  await new Promise(setImmediate);
  expect(isIdle).toBe(false);
  inFlight.leave();
  await second;
});
