import { expect, test } from '@jest/globals';
import { CrossProcessReuse } from '../../src/challenges/cross-process-reuse.ts';

const MINUTE_MS = 60_000;

function bound() {
  let now = 0;
  const reuse = new CrossProcessReuse(() => now);
  const news = [1, 2, 3].map(() => reuse.refused(100));
  const advance = (ms: number): void => {
    now += ms;
  };
  return { reuse, news, advance };
}

test('three refusals in a row say that nonces are bound to their process, unless age explains them', () => {
  const { reuse, news } = bound();
  expect([news, reuse.works]).toEqual([[false, false, true], false]);
  const other = new CrossProcessReuse(() => 0);
  for (const ageMs of [100, 100, 40_000, 40_000]) other.refused(ageMs);
  other.accepted();
  for (const ageMs of [100, 100]) other.refused(ageMs);
  expect(other.works).toBe(true);
});

test('it is tried with one nonce a minute later, and each time after twice as long', () => {
  const { reuse, advance } = bound();
  const waits = Array.from({ length: 8 }, () => {
    let minutes = 0;
    while (!reuse.takeTrial()) {
      advance(MINUTE_MS);
      minutes += 1;
    }
    expect(reuse.takeTrial()).toBe(false);
    reuse.refused(100);
    return minutes;
  });
  expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
});

test('a nonce of another process that is accepted ends it, here and by word of others', () => {
  const { reuse } = bound();
  expect([reuse.accepted(), reuse.works, reuse.accepted()]).toEqual([true, true, false]);
  reuse.adopt(false);
  expect(reuse.works).toBe(false);
  reuse.adopt(true);
  expect(reuse.works).toBe(true);
});

test('a refusal in the second half of a life says nothing, a minute being assumed', () => {
  const reuse = new CrossProcessReuse(() => 0);
  for (let count = 0; count < 5; count += 1) {
    expect([reuse.refused(30_001), reuse.refused(5_001, 10_000)]).toEqual([false, false]);
  }
  expect(reuse.works).toBe(true);
  expect([reuse.refused(30_000), reuse.refused(5_000, 10_000), reuse.refused(0)]).toEqual([
    false,
    false,
    true,
  ]);
});

test('nothing is tried while it works, and by word of others a minute later', () => {
  const { reuse, advance } = bound();
  reuse.accepted();
  advance(100 * MINUTE_MS);
  expect(reuse.takeTrial()).toBe(false);
  reuse.adopt(false);
  expect(reuse.takeTrial()).toBe(false);
  advance(MINUTE_MS - 1);
  reuse.adopt(false);
  advance(1);
  expect(reuse.takeTrial()).toBe(true);
  reuse.adopt(true);
  reuse.adopt(false);
  advance(MINUTE_MS - 1);
  expect(reuse.takeTrial()).toBe(false);
});

test('a word of others that others take back says nothing of when the next one is tried', () => {
  const { reuse, advance } = bound();
  reuse.accepted();
  reuse.adopt(false);
  advance(10_000);
  reuse.adopt(true);
  advance(20_000);
  reuse.adopt(false);
  advance(MINUTE_MS - 1);
  expect(reuse.takeTrial()).toBe(false);
  advance(1);
  expect(reuse.takeTrial()).toBe(true);
});

test('of another upstream nothing is known, and the first trial comes after a minute again', () => {
  const { reuse, advance } = bound();
  for (let count = 0; count < 4; count += 1) reuse.refused(100);
  reuse.forget();
  expect(reuse.works).toBe(true);
  for (let count = 0; count < 3; count += 1) reuse.refused(100);
  advance(MINUTE_MS);
  expect([reuse.works, reuse.takeTrial()]).toEqual([false, true]);
});
