import { inspect } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { z } from 'zod';
import { schemasAt } from '../../src/config/cross-check.ts';
import { ConfigError } from '../../src/config/issues.ts';
import { sectionsSchema } from '../../src/config/schema.ts';
import { isSource } from '../../src/config/secret-source.ts';
import { fuzzRuns } from '../support/fuzz.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { issueLines } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

/** Everything about a parse that could reach a screen or a log. */
function traces(text: string): string {
  try {
    return inspect(parseConfig(text, 'c.yaml'), { depth: null });
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return `${inspect(error, { depth: null })} ${JSON.stringify(error)}`;
  }
}

const words = [
  ...['listen', 'control', 'credentials', 'deployments', 'anonymous', 'd', 'a', 'match', 'sites', 'username'],
  ...[
    'password',
    'value',
    'env',
    'baseUrl',
    'https://a.example',
    'timeouts',
    '5s',
    '0',
    '64KiB',
    'null',
    'true',
  ],
  ...['__proto__', 'constructor', 'toString', '<<', '~', '.inf', '0x10', '2026-01-01'],
];
const marks = [
  ': ',
  ':',
  '\n',
  '\n  ',
  '\n    ',
  '\n\t',
  '- ',
  '{ ',
  ' }',
  '[',
  ']',
  ', ',
  '"',
  "'",
  '|\n',
  '>',
];
const special = [
  '&a ',
  '*a',
  '!x ',
  '!!binary ',
  '#',
  '%YAML 1.1\n',
  '---\n',
  '...',
  '? ',
  '\\',
  '\uFEFF',
  '\r\n',
  '\0',
];
const piece = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(...words) },
  { weight: 6, arbitrary: fc.constantFrom(...marks) },
  { weight: 2, arbitrary: fc.constantFrom(...special) },
  { weight: 1, arbitrary: fc.string({ maxLength: 5 }) },
);
const yamlish = fc.array(piece, { maxLength: 60 }).map((pieces) => pieces.join(''));

test('turns any text into a configuration or a ConfigError whose issues have places in the text, in order', () => {
  fc.assert(
    fc.property(yamlish, (text) => {
      try {
        parseConfig(text, 'c.yaml');
      } catch (error) {
        if (!(error instanceof ConfigError)) {
          throw error;
        }
        expect(error.issues.length).toBeGreaterThan(0);
        const places = error.issues.map(({ line, column }) => line * 1e6 + column);
        expect(places).toEqual(places.toSorted((a, b) => a - b));
        expect(Math.max(...error.issues.map(({ line }) => line))).toBeLessThanOrEqual(
          text.split('\n').length,
        );
      }
    }),
    { numRuns: fuzzRuns(300) },
  );
});

test('turns a changed configuration into a configuration or a ConfigError', () => {
  const right = `${CREDENTIALS}\n${DEPLOYMENTS}\nlisten: { port: 0 }\n`;
  fc.assert(
    fc.property(fc.nat(right.length), fc.nat(12), piece, (start, length, inserted) => {
      const text = right.slice(0, start) + inserted + right.slice(start + length);
      expect(() => issueLines(text)).not.toThrow();
    }),
    { numRuns: fuzzRuns(200) },
  );
});

test.each([
  ['in its place', '{ username: { env: U }, password: { value: hunter2 } }'],
  ['without source', '{ username: { env: U }, password: hunter2 }'],
  ['as a key', '{ username: { env: U }, password: { hunter2 } }'],
  ['as a key beside its source', '{ username: { env: U }, password: { env: P, hunter2: x } }'],
  ['without space after the colon', '{ username: { env: U }, password:hunter2 }'],
  ['as an alias', '{ username: { env: U }, password: { value: *hunter2 } }'],
  ['as a tag', '{ username: { env: U }, password: { value: !hunter2 } }'],
  ['as an anchor', '{ username: { env: U }, password: &hunter2 { value: 1 } }'],
  ['in a quote left open', '{ username: { env: U }, password: { value: "hunter2 } }'],
  ['with an escape that does not exist', '{ username: { env: U }, password: { value: "\\hunter2" } }'],
  ['in a list', '{ username: { env: U }, password: [hunter2] }'],
  ['with two sources', '{ username: { env: U }, password: { env: P, value: hunter2 } }'],
  ['as the whole credential', 'hunter2'],
  ['as the name of a variable', '{ username: { env: U }, password: { env: "hunter2-" } }'],
  ['in place of a hash', '{ username: { env: U }, ha1: { realm: r, md5: hunter2 } }'],
  ['as the name of a sealed one', '{ username: { env: U }, password: { sealed: "hunter2!" } }'],
  ['as the next', '{ username: { env: U }, password: { env: P }, next: hunter2 }'],
  ['as a user name', '{ username: hunter2, password: { env: P } }'],
])('a password %s is in no message', (_title, credential) => {
  expect(traces(`credentials:\n  a: ${credential}\n${DEPLOYMENTS}`)).not.toContain('hunter2');
});

test.each([
  ['a proxy', 'egress: { proxy: { "http://u:hunter2@p:3128" } }'],
  ['a proxy, one level up', 'egress: { "http://u:hunter2@p:3128" }'],
])('a URL with a password in the place of a key is in no message: %s', (_what, egress) => {
  const deployment = `deployments:\n  d: { baseUrl: "https://a.example.org", credential: a, ${egress} }\n`;
  expect(
    traces(`credentials: { a: { username: { env: U }, password: { env: P } } }\n${deployment}`),
  ).not.toContain('hunter2');
});

test.each([
  'audit: { directory: d, replica: r, keyFile: k, sinks: [{ name: x, redis: { "redis://:hunter2@r" } }] }',
  'audit: { directory: d, replica: r, keyFile: k, witness: { "https://u:hunter2@w.example" } }',
  'credentials: { "user:hunter2": { username: { env: U }, password: { env: P } } }',
])('a URL or a pair with a password in the place of a key is in no message: %s', (section) => {
  expect(traces(`${section}\n${DEPLOYMENTS}`)).not.toContain('hunter2');
});

test.each([
  ['in its place', '{ url: "redis://a", password: { value: hunter2 } }'],
  ['in the url', '{ url: "redis://user:hunter2@a:6379" }'],
  ['in a url with an issue of its own', '{ url: "redis://:hunter2@a:x" }'],
  ['without source', '{ url: "redis://a", password: hunter2 }'],
  ['as a key', '{ url: "redis://a", password: { hunter2 } }'],
  ['without space after the colon', '{ url: "redis://a", password:hunter2 }'],
  ['in a sentinel', '{ sentinels: ["user:hunter2@a:26379"], name: m }'],
])('a password of Redis %s is in no message', (_title, redis) => {
  expect(traces(`${CREDENTIALS}\n${DEPLOYMENTS}\nredis: ${redis}`)).not.toContain('hunter2');
});

test.each([
  ['as a key', '{ file: s, identity: { hunter2 } }'],
  ['as a value', '{ file: s, identity: { value: hunter2 } }'],
  ['without source', '{ file: s, identity: hunter2 }'],
  ['beside the file', '{ file: s, hunter2 }'],
])('an identity %s is in no message', (_title, sealed) => {
  expect(traces(`${CREDENTIALS}\n${DEPLOYMENTS}\nsealed: ${sealed}`)).not.toContain('hunter2');
});

/** The paths of all sources of secrets below a schema; `n` stands for the names of entries. */
function sourcePaths(schema: unknown, path: readonly (string | 0)[] = []): (readonly (string | 0)[])[] {
  const wrapped = schemasAt(schema, []);
  if (wrapped.some((each) => isSource(each as z.ZodType))) return [path];
  const innermost = wrapped.at(-1);
  if (innermost instanceof z.ZodObject) {
    return Object.entries(innermost.shape).flatMap(([key, each]) => sourcePaths(each, [...path, key]));
  }
  if (innermost instanceof z.ZodArray) return sourcePaths(innermost.element, [...path, 0]);
  return innermost instanceof z.ZodRecord ? sourcePaths(innermost.valueType, [...path, 'n']) : [];
}

/** YAML with this text at a path. */
function yamlAt(path: readonly (string | 0)[], text: string): string {
  const nested = path.reduceRight<string>(
    (inner, key) => (key === 0 ? `[${inner}]` : `{ ${key}: ${inner} }`),
    text,
  );
  return nested.slice(1, -1);
}

describe('a secret is in no message, wherever a source of one is,', () => {
  const paths = sourcePaths(sectionsSchema());

  test('which is known of every source', () => {
    expect(paths.map((path) => path.join('.'))).toEqual(
      expect.arrayContaining([
        'control.oidc.clientSecret',
        'sealed.identity',
        'audit.sinks.0.s3.secretAccessKey',
        'audit.sinks.0.otlp.headers.n',
        'deployments.n.tls.keyPassphrase',
        'credentials.n.next.ha1.sha512-256',
      ]),
    );
  });

  test.each([
    ['in its place', (path) => yamlAt(path, 'hunter2')],
    ['in a list', (path) => yamlAt(path, '[hunter2]')],
    ['as a key', (path) => yamlAt(path, '{ hunter2 }')],
    ['as a quoted key', (path) => yamlAt(path, '{ "Bearer hunter2" }')],
    ['as a key beside its source', (path) => yamlAt(path, '{ env: P, hunter2: x }')],
    ['as a key that comes twice', (path) => yamlAt(path, '{ hunter2, hunter2 }')],
    ['without space after value:', (path) => yamlAt(path, '{ value:hunter2 }')],
    ['without space after its key', (path) => yamlAt(path.slice(0, -1), `{ ${path.at(-1)}:hunter2 }`)],
    ['in quotes with its key', (path) => yamlAt(path.slice(0, -1), `{ "${path.at(-1)}: hunter2": }`)],
  ] satisfies [string, (path: (typeof paths)[number]) => string][])('%s', (_title, written) => {
    for (const path of paths) {
      const found = traces(written(path));
      expect(found).toContain('issues');
      expect(found).not.toContain('hunter2');
    }
  });
});

test('a password in an origin, and a token instead of its hash, are in no message', () => {
  const origin = withMore().replace('https://', 'https://user:hunter2@');
  expect(traces(`control: { tokenSha256: hunter2 }\n${origin}`)).not.toContain('hunter2');
});
