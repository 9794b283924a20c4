import { expect, test } from '@jest/globals';
import { Standing } from '../../src/upstream/standing.ts';

test('an answer to an attempt that went out before a refused one does not heal the refusal', () => {
  const standing = new Standing();
  const before = standing.attempt();
  const refused = standing.attempt();
  expect(standing.refuse(refused)).toBe(true);
  expect([standing.accept(before), standing.refused, standing.proven]).toEqual([false, true, false]);
  expect([standing.accept(standing.attempt()), standing.refused, standing.proven]).toEqual([
    true,
    false,
    true,
  ]);
});

test('a refusal of an attempt that went out before an accepted one is about something else', () => {
  const standing = new Standing();
  const before = standing.attempt();
  standing.accept(standing.attempt());
  expect([standing.refuse(before), standing.refused]).toEqual([false, false]);
});

test('a refusal is news once', () => {
  const standing = new Standing();
  const attempts = [standing.attempt(), standing.attempt()];
  expect(attempts.map((attempt) => standing.refuse(attempt))).toEqual([true, false]);
});

test('a pardoned credential has to prove itself again', () => {
  const standing = new Standing();
  standing.accept(standing.attempt());
  standing.refuse(standing.attempt());
  standing.pardon();
  expect([standing.refused, standing.proven]).toEqual([false, false]);
});
