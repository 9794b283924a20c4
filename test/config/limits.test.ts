import { describe, expect, test } from '@jest/globals';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { CLIENTS, withMore } from './texts.ts';

const limitsIn = (section: string) =>
  parseConfig(served(withMore(`limits: ${section}`)), 'c.yaml').deployments['d']?.limits;

describe('limits', () => {
  test.each([
    ['{ rate: 50/s, burst: 100 }', { rate: { perSecond: 50, burst: 100 } }],
    ['{ rate: 50/s }', { rate: { perSecond: 50, burst: 50 } }],
    ['{ rate: 600/min }', { rate: { perSecond: 10, burst: 10 } }],
    ['{ rate: 1/min }', { rate: { perSecond: 1 / 60, burst: 1 } }],
    ['{ rate: 9000/h, burst: 1 }', { rate: { perSecond: 2.5, burst: 1 } }],
    ['{ concurrent: 20, daily: 10000 }', { concurrent: 20, daily: 10_000 }],
  ])('%s', (section, expected) => {
    expect(limitsIn(section)).toEqual(expected);
  });

  test('of a client have the same form', () => {
    const text = `${withMore()}\n${CLIENTS.replace('id: c', 'id: c, limits: { rate: 50/s }')}`;
    expect(parseConfig(text, 'c.yaml').clients[0]?.limits).toEqual({ rate: { perSecond: 50, burst: 50 } });
  });

  test('are absent by default', () => {
    expect(parseConfig(served(withMore()), 'c.yaml').deployments['d']?.limits).toBeUndefined();
  });
});

const RATE = 'deployments.d.limits.rate: must be a rate, such as 50/s, 600/min or 10000/h';
const WHOLE = 'must be a whole number from 1 to 1000000000';

const issues: Case[] = [
  ...['50', '0/s', '50/d', '1.5/s', '50 /s', '-1/s', '/s', '9999999999/s'].map(
    (rate): Case => [`with the rate ${rate}`, `{ rate: "${rate}" }`, [`7:21 ${RATE}`]],
  ),
  ['with a rate without unit', '{ rate: 50 }', [`7:21 ${RATE}`]],
  ['with no burst at all', '{ rate: 50/s, burst: 0 }', [`7:34 deployments.d.limits.burst: ${WHOLE}, not 0`]],
  ['with half a place', '{ concurrent: 0.5 }', [`7:27 deployments.d.limits.concurrent: ${WHOLE}, not 0.5`]],
  ['with a day as text', '{ daily: 10k }', [`7:22 deployments.d.limits.daily: ${WHOLE}`]],
  [
    'with a burst of nothing',
    '{ burst: 5, daily: 9 }',
    ['7:22 deployments.d.limits.burst: is for a rate only: give rate, too'],
  ],
  [
    'without content',
    '{}',
    ['7:13 deployments.d.limits: limits nothing: give rate, concurrent or daily, or leave it out'],
  ],
  [
    'with a key that does not exist',
    '{ daily: 9, rates: 50/s }',
    ['7:25 deployments.d.limits.rates: does not exist: the nearest key is rate'],
  ],
];

describe('limits', () => {
  test.each(issues)('reports a section %s', (_title, section, lines) => {
    expectIssues(withMore(`limits: ${section}`), lines);
  });
});
