import { describe, expect, test } from '@jest/globals';
import { quantile, ratios, seededRandom, shuffled, spreadOf, verdictOn } from './statistics.ts';

describe('spread', () => {
  test('has the median and the quartiles, in whatever order values come', () => {
    expect(spreadOf([5, 1, 4, 2, 3])).toMatchObject({ median: 3, q1: 2, q3: 4, min: 1, max: 5, rounds: 5 });
  });

  test('interpolates between two values', () => {
    expect(spreadOf([1, 2, 3, 4])).toMatchObject({
      median: 2.5,
      q1: 1.75,
      q3: 3.25,
      min: 1,
      max: 4,
      rounds: 4,
    });
    expect(quantile([0, 100], 0.99)).toBe(99);
  });

  test('needs values', () => {
    expect(() => spreadOf([])).toThrow(RangeError);
    expect(() => quantile([], 0.5)).toThrow(RangeError);
  });
});

describe('ratios', () => {
  test('are of the same round, whatever the order', () => {
    const own = new Map([
      [2, 30],
      [1, 10],
    ]);
    expect(
      ratios(
        own,
        new Map([
          [1, 20],
          [2, 15],
        ]),
      ),
    ).toEqual([2, 0.5]);
  });

  test('leave out rounds that one of the two lacks', () => {
    const own = new Map([
      [1, 10],
      [2, 10],
      [3, 10],
    ]);
    expect(
      ratios(
        own,
        new Map([
          [2, 5],
          [3, 0],
          [4, 5],
        ]),
      ),
    ).toEqual([2]);
  });
});

describe('the verdict', () => {
  const verdict = (...values: number[]) => verdictOn(spreadOf(values));

  test('is clear when rounds agree and the ratio is not 1', () => {
    expect(verdict(1.2, 1.22, 1.21, 1.19, 1.2)).toBe('clear');
    expect(verdict(0.5, 0.51, 0.49)).toBe('clear');
  });

  test('is noisy when the margin is more than 10 % of the median', () => {
    expect(verdict(1.5, 1.55, 1.6, 1.65, 1.7)).toBe('clear');
    expect(verdict(1.3, 1.5, 1.7, 1.9, 2.1)).toBe('noisy');
    expect(verdict(0.1, 2, 2, 2, 9)).toBe('clear');
  });

  test('needs less agreement the more rounds there are', () => {
    const rounds = [1.4, 1.5, 1.6, 1.7, 1.8];
    expect(verdict(...rounds)).toBe('clear');
    expect(verdict(1.4, 1.6, 1.8)).toBe('noisy');
    expect(spreadOf([...rounds, ...rounds, ...rounds, ...rounds]).margin).toBeCloseTo(
      spreadOf(rounds).margin / 2,
    );
  });

  test('is noisy when there are fewer than 3 rounds', () => expect(verdict(2, 2)).toBe('noisy'));

  test('is that two are the same when they differ by less than the margin', () => {
    expect(verdict(0.98, 1.0, 1.02, 1.04, 1.06)).toBe('same');
    expect(verdict(1.05, 1.06, 1.07, 1.08, 1.09)).toBe('clear');
  });
});

describe('random order', () => {
  test('is the same for the same seed, and has everything once', () => {
    const values = Array.from({ length: 20 }, (_, index) => index);
    const order = shuffled(values, seededRandom(7));
    expect(shuffled(values, seededRandom(7))).toEqual(order);
    expect(shuffled(values, seededRandom(8))).not.toEqual(order);
    expect(order).not.toEqual(values);
    expect(order.toSorted((one, other) => one - other)).toEqual(values);
  });

  test('comes from numbers from 0 to 1 that are spread evenly', () => {
    const random = seededRandom(1);
    const numbers = Array.from({ length: 10_000 }, random);
    expect(Math.min(...numbers)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...numbers)).toBeLessThan(1);
    expect(numbers.reduce((sum, each) => sum + each, 0) / numbers.length).toBeCloseTo(0.5, 1);
  });
});
