import { expect, test } from '@jest/globals';
import { PerClient } from '../../src/base/per-client.ts';

const named = (isUnused = true) => new PerClient(() => ({ isUnused }));

test('keeps the state of a client', () => {
  const states = named();
  expect(states.find('a')).toBeUndefined();
  const state = states.of('a');
  expect([states.of('a'), states.find('a')]).toEqual([state, state]);
  expect(states.of('b')).not.toBe(state);
});

test('drops unused states beyond 4,096, and none that is in use', () => {
  const states = named();
  const used = Array.from({ length: 10 }, (_, index) => states.of(`used-${index}`));
  for (const state of used) state.isUnused = false;
  for (let index = 0; index < 20_000; index += 1) {
    states.of(`client-${index}`);
    expect(states.size).toBeLessThanOrEqual(4096);
  }
  expect(used.map((_, index) => states.find(`used-${index}`))).toEqual(used);
});

test('grows beyond it while all states are in use', () => {
  const states = named(false);
  for (let index = 0; index < 20_000; index += 1) states.of(`client-${index}`);
  expect(states.size).toBe(20_000);
});
