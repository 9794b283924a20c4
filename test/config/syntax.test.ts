import { describe, expect, test } from '@jest/globals';
import { type Case, expectIssues, issueLines } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;

const cases: Case[] = [
  ['a tab', `${RIGHT}\nlisten:\n\tport: 1`, ['4:1 (file): the indentation contains a tab: use spaces']],
  [
    'a key twice',
    `${RIGHT}\nanonymous: false\nanonymous: true`,
    ['4:1 (file): this key comes twice in its mapping, first in line 3: keep one of them'],
  ],
  [
    'a key twice, beside other issues',
    withMore('connections: 0', 'connections: 1', 'body: { max: 1KB }'),
    [
      '8:5 (file): this key comes twice in its mapping, first in line 7: keep one of them',
      '9:18 deployments.d.body.max: "1KB" is not a size: write a whole number and its unit, such as 512, 512B, 64KiB, 1MiB or 2GiB',
    ],
  ],
  [
    'a bracket left open',
    `${RIGHT}\nlisten: { port: 1`,
    ['3:9 (file): the bracket that opens here is not closed: close it'],
  ],
  [
    'a bracket left open in another one, lines before the end',
    `${RIGHT}\nlisten: { hosts: [a }\ncontrol:\n  port: 3\nlog: { requests: true }`,
    ['3:18 (file): the bracket that opens here is not closed: close it'],
  ],
  [
    'a bracket that nothing opens',
    `${RIGHT}\nlisten: { port: 1 }}\ncontrol: { port: 3 }\nlog: { requests: true }`,
    ['3:20 (file): the bracket that closes here was not opened: remove it'],
  ],
  ['a quote left open', 'listen: "x', ['1:9 (file): the quote that opens here is not closed: close it']],
  [
    'a quote left open in a bracket, lines before the end',
    `${RIGHT}\nlisten: { port: 1, address: "a }\ncontrol:\n  port: 3`,
    ['3:29 (file): the quote that opens here is not closed: close it'],
  ],
  [
    'a quote left open before another one',
    `${RIGHT}\nlisten:\n  address: 'a\ncontrol:\n  address: '::1'`,
    ['4:12 (file): the quote that opens here is not closed: close it'],
  ],
  [
    'a line that is indented too far',
    `${RIGHT}\nlisten:\n  port: 1\n    hosts: [a]\ncontrol:\n  port: 3`,
    [
      '5:5 (file): the indentation does not fit: keys of one mapping start in the same column, brackets are closed',
    ],
  ],
  [
    'a line break of old systems, which the last line has',
    ': \r:',
    [
      '1:3 (file): the indentation does not fit: keys of one mapping start in the same column, brackets are closed',
    ],
  ],
  [
    'a line that is indented too little',
    `${RIGHT}\nlisten:\n  hosts:\n    - a\n   - b\ncontrol:\n  port: 3`,
    [
      '6:1 (file): the indentation does not fit: keys of one mapping start in the same column, brackets are closed',
    ],
  ],
  [
    'a colon that is missing',
    `${RIGHT}\nlisten\n  port: 1\n  hosts: [a]\ncontrol:\n  port: 3`,
    ['3:1 (file): a ": " is missing, or a key goes over several lines: write "key: value" on one line'],
  ],
  [
    'tabs on several lines',
    `${RIGHT}\nlisten:\n\tport: 1\ncontrol:\n\tport: 1`,
    ['4:1 (file): the indentation contains a tab: use spaces'],
  ],
  [
    'several mistakes that do not follow from each other',
    `${RIGHT}\na: !yes b\nlisten: *x\na: "\\q"`,
    [
      '3:4 (file): the tag is not known: leave it out, or put text that starts with ! in quotes',
      '4:9 (file): the alias has no anchor before it: put text that starts with * in quotes',
      '5:1 (file): this key comes twice in its mapping, first in line 3: keep one of them',
      '5:5 (file): a backslash in double quotes starts no known escape: write \\\\, or use single quotes',
    ],
  ],
  [
    'an alias without anchor',
    `${RIGHT}\nlisten: *x`,
    ['3:9 (file): the alias has no anchor before it: put text that starts with * in quotes'],
  ],
  [
    'a tag',
    `${RIGHT}\nanonymous: !yes true`,
    ['3:12 (file): the tag is not known: leave it out, or put text that starts with ! in quotes'],
  ],
  [
    'two documents',
    `${RIGHT}\n---\na: 1`,
    ['3:1 (file): a second document starts here: keep one document in the file'],
  ],
  [
    'a reserved character',
    'listen: @x',
    ['1:9 (file): a plain text cannot start with @, ` or %: put it in quotes'],
  ],
  [
    'a percent sign',
    'listen: %x',
    ['1:9 (file): a plain text cannot start with @, ` or %: put it in quotes'],
  ],
  [
    'two colons on a line',
    'a: b: c',
    ['1:4 (file): a second ": " on one line: put the text in quotes, or start a new line'],
  ],
  ['a list as key', '? [a]\n: b', ['1:3 (file): a key is not a text: write a plain word']],
  [
    'an escape that does not exist',
    'listen: "\\q"',
    ['1:10 (file): a backslash in double quotes starts no known escape: write \\\\, or use single quotes'],
  ],
  [
    'a directive',
    `%FOO\n---\n${RIGHT}`,
    ['1:1 (file): a line that starts with % is a directive that is not known: leave it out'],
  ],
  [
    'text before a key',
    'hello\nlisten: 1',
    ['1:1 (file): a ": " is missing, or a key goes over several lines: write "key: value" on one line'],
  ],
  [
    'aliases that expand without end',
    [
      'a: &a [x,x,x,x,x,x,x,x]',
      'b: &b [*a,*a,*a,*a,*a,*a]',
      'c: &c [*b,*b,*b,*b,*b,*b]',
      'd: [*c,*c,*c,*c]',
    ].join('\n'),
    ['1:1 (file): aliases or nesting go too deep: write the values out'],
  ],
];

describe('syntax', () => {
  test.each(cases)('%s', (_title, text, lines) => {
    expectIssues(text, lines);
  });

  test.each([
    ['brackets', '['.repeat(20_000)],
    ['lists', '- '.repeat(20_000)],
    ['mappings', Array.from({ length: 3000 }, (_, depth) => `${' '.repeat(depth)}a:`).join('\n')],
  ])('reports %s that are nested without end', (_title, text) => {
    expect(issueLines(text)[0]).toMatch(/^c\.yaml:\d+:\d+ /);
  });

  test('locates issues as before with Windows line ends and a byte order mark', () => {
    const text = `\uFEFF${withMore('connections: 0').replaceAll('\n', '\r\n')}`;
    expect(issueLines(text)).toEqual([
      'c.yaml:7:18 deployments.d.connections: must be a whole number from 1 to 65535, not 0',
    ]);
  });
});
