import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { Lifetime } from '../../src/challenges/learning.ts';
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

function scene(lead = true, random = 0) {
  const origin = { cnonce: 'c', obtainedAt: Date.now() };
  const nonce = new Nonce(aged('n'), { username: 'u', password: new Secret('p') }, origin);
  const lifetime = new Lifetime();
  lifetime.adopt(LIFE_MS);
  const renewed: number[] = [];
  const asked: number[] = [];
  const learning = { lifetime, sharesNonces: true, ageOf: () => Date.now() - origin.obtainedAt } as never;
  const sharedChallenges = {
    lead: (ms: number) => {
      asked.push(ms);
      return Promise.resolve(lead);
    },
  } as never;
  const renewal = new Renewal({
    learning,
    sharedChallenges,
    clock: { now: () => Date.now() },
    random: () => random,
    renew: () => {
      renewed.push(Date.now() - origin.obtainedAt);
      return Promise.resolve();
    },
  });
  renewal.plan(nonce);
  return { nonce, lifetime, renewal, renewed, asked };
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

test('chance puts a renewal off by up to a tenth of a life, and leads for a tenth', async () => {
  const { nonce, renewed, asked } = scene(true, 0.5);
  nonce.uses = 1;
  await jest.advanceTimersByTimeAsync(8_000);
  expect([renewed, asked]).toEqual([[7_500], [1_000]]);
});

test('a nonce that is planned again, late in its life, is renewed once', async () => {
  const { nonce, renewal, renewed } = scene();
  nonce.uses = 1;
  await jest.advanceTimersByTimeAsync(3_000);
  renewal.plan(nonce);
  await jest.advanceTimersByTimeAsync(4_500);
  expect(renewed).toEqual([7_000]);
});

test('nothing is planned once nobody knows how long nonces live, and nothing for one that is over', async () => {
  const { nonce, lifetime, renewal, renewed } = scene();
  nonce.uses = 1;
  lifetime.forget();
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect([renewed, jest.getTimerCount()]).toEqual([[], 0]);
  renewal.plan(nonce);
  expect(jest.getTimerCount()).toBe(0);
  lifetime.adopt(LIFE_MS - 1);
  renewal.plan(nonce);
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect([renewed, jest.getTimerCount()]).toEqual([[], 0]);
});
