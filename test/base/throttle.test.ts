import { expect, test } from '@jest/globals';
import { Throttle } from '../../src/base/throttle.ts';

test('lets one line in 10 s through for each thing, and counts the others', () => {
  const clock = { time: 0, now: () => clock.time };
  const throttle = new Throttle(clock, 10);
  expect(['a', 'b', 'a', 'a'].map((key) => throttle.admit(key))).toEqual([0, 0, undefined, undefined]);
  clock.time = 9_999;
  expect(throttle.admit('a')).toBeUndefined();
  clock.time = 10_000;
  expect(['a', 'b', 'a'].map((key) => throttle.admit(key))).toEqual([3, 0, undefined]);
});

test('forgets the thing that was logged longest ago when there are too many', () => {
  const throttle = new Throttle({ now: () => 0 }, 2);
  expect(['a', 'b', 'c', 'b', 'a'].map((key) => throttle.admit(key))).toEqual([0, 0, 0, undefined, 0]);
});

test('has the time between two events that it was given', () => {
  const clock = { time: 0, now: () => clock.time };
  const throttle = new Throttle(clock, 1, 60_000);
  const times = [0, 59_999, 60_000, 60_001];
  const admitted = times.map((time) => {
    clock.time = time;
    return throttle.admit('a');
  });
  expect(admitted).toEqual([0, undefined, 1, undefined]);
});
