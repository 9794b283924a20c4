import { expect, test } from '@jest/globals';
import { Query } from '../../src/policy/query.ts';

const SMALL = 64 * 1024;
/** So many times as long. Quadratic work would be 64 times as much. */
const TIMES = 8;
const MAX_RATIO = 24;

test.each([
  ['without = and ;', (length: number) => '&'.repeat(length)],
  ['with one ; at its end', (length: number) => `${'&'.repeat(length)};`],
  ['with one = at its end', (length: number) => `${'&'.repeat(length)}=`],
])('a long query %s takes linear time', (_, queryOf) => {
  const [small, large] = [SMALL, TIMES * SMALL].map((length) => {
    const query = queryOf(length);
    return Math.min(...[1, 2, 3].map(() => cpuOf(query)));
  });
  expect((large ?? 0) / (small ?? 0)).toBeLessThan(MAX_RATIO);
});

/** Milliseconds of the processor. */
function cpuOf(query: string): number {
  const before = process.threadCpuUsage();
  expect(new Query(query).overridesMethod()).toBe(false);
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

test.each([
  ['a=1&b=2', { a: '1', b: '2' }],
  ['a=b=c&b', { a: 'b=c', b: '' }],
  ['=x&a=&b=3=', { a: '', b: '3=' }],
  ['&&a&b=1', { a: '', b: '1' }],
])('reads %s', (text, expected) => {
  const query = new Query(text);
  expect({ a: query.decode('a'), b: query.decode('b') }).toEqual(expected);
});
