import { expect, test } from '@jest/globals';
import { changesBetween } from '../../src/app/changes.ts';
import { runAtOnce } from '../../src/base/steps.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

test('lists changed sections and entries by name, never by value', () => {
  const before = parseConfig(served(`${CREDENTIALS}\n${DEPLOYMENTS}`), 'c.yaml');
  const after = parseConfig(
    'anonymous: true\ncredentials: { a: { username: { env: U }, password: { value: hunter2 } } }\n' +
      'deployments: { e: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a } }',
    'c.yaml',
  );
  expect(runAtOnce(changesBetween(before, before))).toEqual([]);
  expect(runAtOnce(changesBetween(before, after)).sort()).toEqual([
    'credentials.a',
    'deployments.d',
    'deployments.e',
  ]);
});

test('lists an entry of which only a secret changed', () => {
  const [before, same, after] = ['one', 'one', 'two'].map((passphrase) =>
    parseConfig(
      served(
        `${CREDENTIALS}\ndeployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a, tls: { certFile: c, keyFile: k, keyPassphrase: { value: ${passphrase} } } } }`,
      ),
      'c.yaml',
    ),
  );
  if (!before || !same || !after) throw new Error('three configurations were parsed');
  expect(runAtOnce(changesBetween(before, same))).toEqual([]);
  expect(runAtOnce(changesBetween(before, after))).toEqual(['deployments.d']);
});
