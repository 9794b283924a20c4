import { expect, test } from '@jest/globals';
import { InFlight } from '../../src/base/in-flight.ts';

test('resolves at once if nothing is under way, and else when the last of it is over', async () => {
  const inFlight = new InFlight();
  await inFlight.idle();
  inFlight.enter();
  inFlight.enter();
  let resolved = 0;
  const waiting = [1, 2].map(() =>
    inFlight.idle().then(() => {
      resolved += 1;
    }),
  );
  inFlight.leave();
  await Promise.resolve();
  expect([inFlight.count, resolved]).toEqual([1, 0]);
  inFlight.leave();
  await Promise.all(waiting);
  expect([inFlight.count, resolved]).toEqual([0, 2]);
});
