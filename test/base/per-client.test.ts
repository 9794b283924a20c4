import { expect, test } from '@jest/globals';
import { PerClient } from '../../src/base/per-client.ts';

const named = (isUnused = true) => new PerClient(() => ({ isUnused }));

const kept = (states: ReturnType<typeof named>, clients: readonly string[]): number =>
  clients.filter((client) => states.find(client) !== undefined).length;

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
  const clients = Array.from({ length: 20_000 }, (_, index) => `client-${index}`);
  for (const client of clients) states.of(client);
  expect(kept(states, clients)).toBeLessThanOrEqual(4096);
  expect(used.map((_, index) => states.find(`used-${index}`))).toEqual(used);
});

test('grows beyond it while all states are in use', () => {
  const states = named(false);
  const clients = Array.from({ length: 20_000 }, (_, index) => `client-${index}`);
  for (const client of clients) states.of(client);
  expect(kept(states, clients)).toBe(20_000);
});
