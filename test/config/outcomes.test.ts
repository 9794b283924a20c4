import { describe, expect, test } from '@jest/globals';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { withMore } from './texts.ts';

const outcomesIn = (list: string) =>
  parseConfig(served(withMore(`outcomes: ${list}`)), 'c.yaml').deployments['d']?.outcomes;

describe('outcomes', () => {
  test.each([
    ['[{ name: a, status: 503 }]', [{ name: 'a', status: [503] }]],
    ['[{ name: a, status: [101, 599] }]', [{ name: 'a', status: [101, 599] }]],
    [
      '[{ name: a.b-c_1, status: 400, bodyContains: "zu früh", pause: 5s }]',
      [{ name: 'a.b-c_1', status: [400], bodyContains: 'zu früh', pause: 5000 }],
    ],
    [
      '[{ name: a, status: 429, pause: 1m, scope: credential }]',
      [{ name: 'a', status: [429], pause: 60_000, scope: 'credential' }],
    ],
    [
      '[{ name: a, status: 500, bodyContains: x }, { name: b, status: [500, 503] }, { name: c, status: [503, 504] }]',
      [
        { name: 'a', status: [500], bodyContains: 'x' },
        { name: 'b', status: [500, 503] },
        { name: 'c', status: [503, 504] },
      ],
    ],
    ['[]', []],
  ])('%s', (list, expected) => {
    expect(outcomesIn(list)).toEqual(expected);
  });

  test('are absent by default', () => {
    expect(parseConfig(served(withMore()), 'c.yaml').deployments['d']?.outcomes).toEqual([]);
  });

  test('can compare a text of 256 bytes', () => {
    const text = 'é'.repeat(128);
    expect(outcomesIn(`[{ name: a, status: 500, bodyContains: ${text} }]`)).toEqual([
      { name: 'a', status: [500], bodyContains: text },
    ]);
  });
});

const AT = 'deployments.d.outcomes';
const STATUS = 'must be a whole number from 101 to 599';
const NAME_RULE = 'name of letters, digits, "-", "_" and ".", 64 at most, a letter or digit first';
const TEXT = 'must be a text of 1 to 256 bytes';

const issues: Case[] = [
  [
    'that is no list',
    '{ name: a }',
    [`7:15 ${AT}: must be a list of outcomes, each with a name and a status`],
  ],
  [
    'without content',
    '[{}]',
    [
      `7:16 ${AT}[0].name: is missing: give a ${NAME_RULE}`,
      `7:16 ${AT}[0].status: is missing: give a status from 101 to 599, or a list of them`,
    ],
  ],
  [
    'with a name that is none',
    '[{ name: "a b", status: 500 }]',
    [`7:24 ${AT}[0].name: must be a ${NAME_RULE}`],
  ],
  [
    'with the same name twice',
    '[{ name: a, status: 500 }, { name: a, status: 501 }]',
    [`7:50 ${AT}[1].name: is the name of another outcome, too: give each its own`],
  ],
  [
    'with a status out of range',
    '[{ name: a, status: [100, 600, 500] }]',
    [`7:36 ${AT}[0].status[0]: ${STATUS}, not 100`, `7:41 ${AT}[0].status[1]: ${STATUS}, not 600`],
  ],
  [
    'with a class of statuses',
    '[{ name: a, status: 5xx }]',
    [`7:35 ${AT}[0].status: must be a status from 101 to 599, or a list of them`],
  ],
  [
    'without a status',
    '[{ name: a, status: [] }]',
    [`7:35 ${AT}[0].status: must be a status from 101 to 599, or a list of them`],
  ],
  [
    'with an empty text',
    '[{ name: a, status: 500, bodyContains: "" }]',
    [`7:54 ${AT}[0].bodyContains: ${TEXT}`],
  ],
  [
    'with a text of 257 bytes',
    `[{ name: a, status: 500, bodyContains: ${'é'.repeat(128)}x }]`,
    [`7:54 ${AT}[0].bodyContains: ${TEXT}`],
  ],
  [
    'with a scope without pause',
    '[{ name: a, status: 500, scope: credential }]',
    [`7:47 ${AT}[0].scope: is for a pause only: give pause, too`],
  ],
  [
    'with another scope',
    '[{ name: a, status: 500, pause: 1s, scope: client }]',
    [`7:58 ${AT}[0].scope: must be one of deployment, credential`],
  ],
  [
    'with no pause',
    '[{ name: a, status: 500, pause: 0s }]',
    [`7:47 ${AT}[0].pause: 0s is out of range: write a duration from 1ms to 24d`],
  ],
  [
    'that can never match',
    '[{ name: a, status: [500, 503] }, { name: b, status: 503, bodyContains: x }]',
    [`7:68 ${AT}[1].status: is taken by outcomes above without bodyContains: put this one above them`],
  ],
  [
    'with a key that does not exist',
    '[{ name: a, status: 500, bodyContain: x }]',
    [`7:40 ${AT}[0].bodyContain: does not exist: the nearest key is bodyContains`],
  ],
];

describe('outcomes', () => {
  test.each(issues)('reports a list %s', (_title, list, lines) => {
    expectIssues(withMore(`outcomes: ${list}`), lines);
  });
});
