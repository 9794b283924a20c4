import { expect, test } from '@jest/globals';
import { UseCount } from '../../src/base/use-count.ts';

test('everyone who waits for the end of all uses gets it with the last one', async () => {
  const uses = new UseCount();
  await uses.unused();
  uses.enter();
  uses.enter();
  const events: string[] = [];
  const waiting = ['one', 'two'].map((name) => uses.unused().then(() => events.push(name)));
  uses.leave();
  await new Promise(setImmediate);
  events.push('last');
  uses.leave();
  await Promise.all(waiting);
  expect(events).toEqual(['last', 'one', 'two']);
});

test('a use that begins after all have ended is waited for, too', async () => {
  const uses = new UseCount();
  uses.enter();
  const first = uses.unused();
  uses.leave();
  await first;
  uses.enter();
  let isUnused = false;
  const second = uses.unused().then(() => {
    isUnused = true;
  });
  await new Promise(setImmediate);
  expect(isUnused).toBe(false);
  uses.leave();
  await second;
});
