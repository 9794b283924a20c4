import { readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import { configJsonSchema, partJsonSchema } from '../../src/config/json-schema.ts';
import { repository } from '../support/repository.ts';
import { CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;

// The strict mode of Ajv refuses keywords that are not JSON Schema. Types may be unions, as of sizes.
const validate = new Ajv({ allErrors: true, strict: true, allowUnionTypes: true }).compile(
  JSON.parse(JSON.stringify(configJsonSchema())),
);

/** The issues of a configuration: path and keyword. */
function issuesOf(text: string): string[] {
  validate(parse(text));
  return (validate.errors ?? []).map(({ instancePath, keyword }) => `${instancePath} ${keyword}`);
}

const configurations = [
  'deploy/compose/gateway.yaml',
  ...(await readdir(join(repository, 'config')))
    .filter((name) => name.endsWith('.yaml') && name !== 'simulator.yaml')
    .map((name) => `config/${name}`),
];

test.each(configurations)('%s is valid', async (name) => {
  expect(issuesOf(await readFile(join(repository, name), 'utf8'))).toEqual([]);
});

test.each(['example', 'minimal', 'demo'])('config/%s.yaml names the schema for editors', async (name) => {
  const file = join(repository, 'config', `${name}.yaml`);
  const [, schema = ''] =
    /^# yaml-language-server: \$schema=(\S+)\n/.exec(await readFile(file, 'utf8')) ?? [];
  expect(JSON.parse(readFileSync(join(repository, 'config', schema), 'utf8'))).toMatchObject({
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Configuration of digest-gateway',
  });
});

describe.each([
  ['every form of a duration', withMore('timeouts: { connect: 1ms, response: 2s, idle: 3m, total: 4h }')],
  ['every form of a size', withMore('body: { replayUpTo: 512, max: 64KiB }')],
  [
    'a key file with permission',
    withMore('tls: { certFile: a, keyFile: { file: b, readableByOthers: true } }'),
  ],
  ['health checks that are off', withMore('health: { interval: off }')],
  ['a rate that is off', withMore('body: { minRate: off }')],
  ['the deployments in an included file', 'include: clients.d/*.yaml'],
  [
    'a list of addresses',
    `${RIGHT.replace('"https://a.example"', '[https://a.example, https://b.example]')}`,
  ],
  ['a list of listeners', `${RIGHT}\nlisten: [{ port: 1 }, { address: "unix:/a" }]`],
])('the schema accepts', (name, text) => {
  test(name, () => expect(issuesOf(text)).toEqual([]));
});

describe.each([
  [
    'an unknown key',
    `${RIGHT}\nlisten: { prot: 80 }`,
    ['/listen additionalProperties', '/listen type', '/listen anyOf'],
  ],
  ['a duration without unit', `${RIGHT}\ndrain: { delay: 5 }`, ['/drain/delay type']],
  ['a unit that no duration has', `${RIGHT}\ndrain: { delay: 5min }`, ['/drain/delay pattern']],
  ['a unit that no size has', withMore('body: { max: 1MB }'), ['/deployments/d/body/max pattern']],
  [
    'a port that is too high',
    `${RIGHT}\nlisten: { port: 65536 }`,
    ['/listen/port maximum', '/listen type', '/listen anyOf'],
  ],
  ['another choice', `${RIGHT}\nlog: { level: verbose }`, ['/log/level enum']],
  ['a query in a prefix', RIGHT.replace('/a/', '/a?b'), ['/deployments/d/match/pathPrefix pattern']],
  [
    'a name with a space',
    RIGHT.replace('{ d:', '{ "d e":'),
    ['/deployments pattern', '/deployments propertyNames'],
  ],
  ['a missing section', CREDENTIALS, [' required', ' required', ' anyOf']],
])('the schema refuses', (name, text, issues) => {
  test(name, () => expect(issuesOf(text)).toEqual(issues));
});

test('the schema of an included file accepts its sections, and no others', () => {
  const part = new Ajv({ strict: true, allowUnionTypes: true }).compile(partJsonSchema());
  expect([part(parse(RIGHT)), part(parse(CREDENTIALS)), part({})]).toEqual([true, true, true]);
  expect([part(parse(`${RIGHT}\nlisten: {}`)), part({ include: 'a' })]).toEqual([false, false]);
});

test('describes every key', () => {
  const undescribed: string[] = [];
  const visit = (path: string, schema: unknown): void => {
    if (typeof schema !== 'object' || schema === null) return;
    const properties = 'properties' in schema ? Object.entries(schema.properties as object) : [];
    for (const [key, child] of properties) {
      // The keys of a form in a union are described where the union is.
      if (!('description' in child) && !path.includes('anyOf')) undescribed.push(`${path}/${key}`);
    }
    for (const [key, child] of Object.entries(schema)) visit(`${path}/${key}`, child);
  };
  visit('', configJsonSchema());
  expect(undescribed).toEqual([]);
});
