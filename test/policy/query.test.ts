import { expect, test } from '@jest/globals';
import { Query } from '../../src/policy/query.ts';
import { cpuMeter } from '../support/measure.ts';

const LENGTH = 2 ** 20;
/** Milliseconds of the processor: linear work takes 0.2 s, quadratic work 10 s and more. */
const MAX_MS = 3_000;

test.each([
  ['without = and ;', '&'.repeat(LENGTH)],
  ['with one ; at its end', `${'&'.repeat(LENGTH)};`],
  ['with one = at its end', `${'&'.repeat(LENGTH)}=`],
])('a query of 1 MiB %s takes linear time', (_, query) => {
  const cpuMs = cpuMeter();
  expect(new Query(query).overridesMethod()).toBe(false);
  expect(cpuMs()).toBeLessThan(MAX_MS);
});

test.each([
  ['a=1&b=2', { a: '1', b: '2' }],
  ['a=b=c&b', { a: 'b=c', b: '' }],
  ['=x&a=&b=3=', { a: '', b: '3=' }],
  ['&&a&b=1', { a: '', b: '1' }],
])('reads %s', (text, expected) => {
  const query = new Query(text);
  expect({ a: query.decode('a'), b: query.decode('b') }).toEqual(expected);
});
