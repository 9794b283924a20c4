import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { Lifetime } from '../../src/challenges/lifetime.ts';
import { Nonce } from '../../src/challenges/nonce.ts';
import { Renewal } from '../../src/challenges/renewal.ts';
import { aged } from '../support/challenges.ts';

const LIFE_MS = 10_000;

beforeEach(() => {
  jest.useFakeTimers();
});

afterEach(() => {
  jest.useRealTimers();
});

function scene(lead = true) {
  const origin = { cnonce: 'c', obtainedAt: Date.now(), hintMs: undefined };
  const nonce = new Nonce(aged('n'), { username: 'u', password: new Secret('p') }, origin);
  const lifetime = new Lifetime(() => Date.now());
  lifetime.adopt(LIFE_MS);
  const renewed: number[] = [];
  const renewal = new Renewal({
    lifetime,
    clock: { now: () => Date.now() },
    random: () => 0,
    lead: () => Promise.resolve(lead),
    renew: () => {
      renewed.push(Date.now() - origin.obtainedAt);
      return Promise.resolve();
    },
  });
  renewal.plan(nonce);
  return { nonce, renewal, renewed };
}

test('a nonce in use is renewed at 70 % of its life, and again if that brought none', async () => {
  const { nonce, renewed } = scene();
  nonce.uses = 1;
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect(renewed).toEqual([7_000, 8_000, 9_000, 10_000]);
});

test('a nonce that comes into use late is renewed, one that nobody uses is not', async () => {
  const { nonce, renewed } = scene();
  await jest.advanceTimersByTimeAsync(7_500);
  expect(renewed).toEqual([]);
  nonce.uses = 1;
  await jest.advanceTimersByTimeAsync(1_000);
  expect(renewed).toEqual([8_000]);
});

test('who does not lead leaves it to who does', async () => {
  const { nonce, renewed } = scene(false);
  nonce.uses = 1;
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect(renewed).toEqual([]);
});

test('nothing is left to do for a nonce that is no longer in use', async () => {
  const { nonce, renewal, renewed } = scene();
  nonce.uses = 1;
  renewal.cancel();
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect([renewed, jest.getTimerCount()]).toEqual([[], 0]);
});
