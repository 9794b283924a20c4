import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from '@jest/globals';
import { keysThatNeedRestart, pin } from '../../src/app/changes.ts';
import { runAtOnce } from '../../src/base/steps.ts';
import { knownKeys } from '../../src/config/cross-check.ts';
import type { Path } from '../../src/config/issues.ts';
import { writtenPath } from '../../src/config/listen.ts';
import { locatedAlone } from '../../src/config/load.ts';
import { configSchema } from '../../src/config/section-issues.ts';
import { fromPieces, toPieces } from '../../src/config/transfer.ts';
import { type AppSetup, readSetup } from '../../src/setup/setup.ts';
import { closing } from '../support/closing.ts';
import { setupFor } from '../support/gateway.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

const schema = configSchema();
const FILE = 'config/example.yaml';

/**
 * The path of every key of the schema that has no keys below it; an entry with a name of the user's choice is called
 * NAME.
 */
function pathsUnder(path: Path): Path[] {
  const last = String(path.at(-1));
  if (['listen', 'clients', 'allow', 'issuers'].includes(last)) return pathsUnder([...path, 0]);
  const named = ['credentials', 'deployments', 'sites', 'operations', 'parameters'].includes(last);
  const keys = named ? ['NAME'] : knownKeys(schema, path);
  return keys.length === 0 ? [path] : keys.flatMap((key) => pathsUnder([...path, key]));
}

function at(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((each, key) => (each as Record<string, unknown> | undefined)?.[key], value);
}

function withValue(value: unknown, [key, ...path]: Path, end: unknown): unknown {
  if (key === undefined) return end;
  if (Array.isArray(value)) return value.with(Number(key), withValue(value[Number(key)], path, end));
  const fields = typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  return { ...fields, [key]: withValue(fields[key], path, end) };
}

async function setupOf(text: string, file = 'c.yaml'): Promise<AppSetup> {
  const { config, tree } = locatedAlone(Buffer.from(text), file);
  const base = await setupFor({ d: { origin: 'https://u.example.org' } });
  return { ...base, config, source: { file, config: toPieces(tree) } };
}

test('each key of the schema is either in use or told to need a restart', async () => {
  const text = await readFile(FILE, 'utf8');
  const running = await setupOf(text, FILE);
  const { tree } = locatedAlone(Buffer.from(text), FILE);
  const keptSections = new Set<unknown>();
  for (const path of pathsUnder([])) {
    const changed = withValue(running.config, path, { changed: true }) as AppSetup['config'];
    // Of one listener, the file has a mapping.
    const written = writtenPath(path, false);
    const source = { file: FILE, config: toPieces(withValue(tree, written, { changed: true })) };
    const { setup, needsRestart } = pin(running, { ...running, config: changed, source });
    const isKept = isDeepStrictEqual(setup.config, running.config);
    expect([path, isKept]).toEqual([path, needsRestart.length > 0]);
    if (isKept) keptSections.add(path[0]);
    // A worker reads its configuration from these pieces.
    const sections = JSON.parse(new TextDecoder().decode(setup.source.config[0]));
    const inTree = path[0] !== undefined && path[0] in sections ? at(sections, written) : undefined;
    if (isKept) expect([path, inTree]).toEqual([path, at(tree, written)]);
    else if (inTree !== undefined && path.length > 1)
      expect([path, inTree]).toEqual([path, { changed: true }]);
  }
  expect([...keptSections].sort()).toEqual(['audit', 'control', 'listen', 'redis', 'workers']);
});

test('workers read from the pieces what the primary uses', async () => {
  const right = `${CREDENTIALS}\n${DEPLOYMENTS}`;
  const running = await setupOf(served(`${right}\nlisten: { port: 1, hosts: [a.example] }`));
  const next = await setupOf(
    served(
      `${right}\nlisten: { port: 2, hosts: [b.example] }\nworkers: 4\nlog: { level: debug }\naudit: { directory: d, keyFile: k }`,
    ),
  );
  const { setup, needsRestart } = pin(running, next);
  expect(needsRestart).toEqual(['listen.port', 'workers', 'audit']);
  expect(setup.config).toMatchObject({
    listen: [{ port: 1, hosts: ['b.example'] }],
    workers: 1,
    log: { level: 'debug' },
  });
  expect(runAtOnce(fromPieces(setup.source.config, 'c.yaml'))).toEqual(setup.config);
  const { setup: again, needsRestart: none } = pin(setup, running);
  expect([again.config, none]).toEqual([running.config, []]);
});

test('a configuration that is safe only with other values of these keys is refused', async () => {
  const right = `${CREDENTIALS}\n${DEPLOYMENTS}`;
  const client = 'clients: [{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d }] }]';
  const running = await setupOf(`${right}\nlisten: { address: 0.0.0.0 }\n${client}`);
  const next = await setupOf(`${right}\nanonymous: true`);
  expect(() => pin(running, next)).toThrow(
    'c.yaml:1:1 anonymous: does not fit the running values of listen.address, which need a restart: would let everyone',
  );
});

test('names the keys, never a value', () => {
  const right = served(`${CREDENTIALS}\n${DEPLOYMENTS}`);
  const [running, next] = [right, `${right}\ncontrol: { port: 4711 }`].map((text) =>
    parseConfig(text, 'c.yaml'),
  );
  if (running === undefined || next === undefined) throw new Error('two configurations were parsed');
  expect(keysThatNeedRestart(running, next)).toEqual(['control.port']);
  expect(keysThatNeedRestart(running, running)).toEqual([]);
});

test.each([
  ['redis: { url: "redis://redis-1", password: { value: VALUE } }', 'redis.password.value'],
  [
    'control: { oidc: { issuer: "https://idp.example", clientId: c, clientSecret: { value: VALUE }, publicUrl: "https://h.example", roles: { viewer: [a] } } }',
    'control.oidc.clientSecret.value',
  ],
  [
    'audit: { directory: d, keyFile: k, sinks: [{ name: s, otlp: { endpoint: "https://o.example/", headers: { authorization: { value: VALUE } } } }] }',
    'audit.sinks',
  ],
])('names the key of another secret: %s', (section, key) => {
  const [running, same, next] = ['old', 'old', 'new'].map((value) =>
    parseConfig(served(`${CREDENTIALS}\n${DEPLOYMENTS}\n${section.replace('VALUE', value)}`), 'c.yaml'),
  );
  if (!running || !same || !next) throw new Error('three configurations were parsed');
  expect(keysThatNeedRestart(running, same)).toEqual([]);
  expect(keysThatNeedRestart(running, next)).toEqual([key]);
});

test.each([
  ['url: "redis://a"', 'url: "redis://b"', ['redis.url']],
  ['url: "redis://a"', 'url: "redis://a/1"', ['redis.url']],
  ['sentinels: ["a:1"], name: m', 'sentinels: ["a:1"], name: n', ['redis.name']],
  ['url: "redis://a"', 'cluster: ["a:1"]', ['redis.url', 'redis.cluster']],
])('names the keys of Redis as they are written: %s becomes %s', (before, after, keys) => {
  const [running, next] = [before, after].map((servers) =>
    parseConfig(served(`${CREDENTIALS}\n${DEPLOYMENTS}\nredis: { ${servers} }`), 'c.yaml'),
  );
  if (!running || !next) throw new Error('two configurations were parsed');
  expect(keysThatNeedRestart(running, next)).toEqual(keys);
});

test('names the key of a file whose content differs, and keeps what was read at the start', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pin-'));
  closing.push(() => rm(folder, { recursive: true }));
  const write = (name: string, text: string): Promise<void> =>
    writeFile(join(folder, name), text, { mode: 0o600 });
  const sections = [
    'redis: { url: "redis://redis-1", password: { file: password } }',
    `audit: { directory: log, keyFile: key, sinks: [{ name: r, redis: {} }, { name: o, otlp: { endpoint: "https://o.example/", headers: { authorization: { file: header } } } }] }`,
  ];
  await write('c.yaml', served([CREDENTIALS, DEPLOYMENTS, ...sections].join('\n')));
  await write('key', 'a'.repeat(64));
  const read = async (password: string, header: string): Promise<AppSetup> => {
    await Promise.all([write('password', password), write('header', header)]);
    return readSetup(join(folder, 'c.yaml'), { environment: { U: 'u', P: 'p' } });
  };
  const running = await read('old', 'one');
  expect(pin(running, await read('old', 'one')).needsRestart).toEqual([]);
  const { setup, needsRestart } = pin(running, await read('new', 'one'));
  expect(needsRestart).toEqual(['redis.password']);
  expect(setup.redis?.password?.reveal()).toBe('old');
  expect(pin(setup, await read('new', 'two')).needsRestart).toEqual(['redis.password', 'audit.sinks']);
  expect(pin(setup, await read('old', 'one')).needsRestart).toEqual([]);
});

test('of pseudonyms, a reload changes the fields alone', async () => {
  const withPseudonyms = (text: string): Promise<AppSetup> =>
    setupOf(
      served(
        `${CREDENTIALS}\n${DEPLOYMENTS}\naudit: { directory: d, keyFile: k, parameters: [ids], pseudonyms: ${text} }`,
      ),
    );
  const running = await withPseudonyms('{ keysDirectory: one, fields: [address] }');
  const next = await withPseudonyms('{ keysDirectory: two, per: client, fields: [parameters.ids] }');
  const { setup, needsRestart } = pin(running, next);
  expect(needsRestart).toEqual(['audit.pseudonyms.keysDirectory', 'audit.pseudonyms.per']);
  const { keysDirectory } = running.config.audit?.pseudonyms ?? {};
  const used = { keysDirectory, fields: ['parameters.ids'], per: 'month' };
  expect(setup.config.audit?.pseudonyms).toEqual(used);
  const without = await setupOf(
    served(`${CREDENTIALS}\n${DEPLOYMENTS}\naudit: { directory: d, keyFile: k, parameters: [ids] }`),
  );
  const [added, removed] = [pin(without, next), pin(setup, without)];
  expect([added.needsRestart, added.setup.config.audit?.pseudonyms]).toEqual([
    ['audit.pseudonyms'],
    undefined,
  ]);
  expect([removed.needsRestart, removed.setup.config.audit?.pseudonyms]).toEqual([
    ['audit.pseudonyms'],
    used,
  ]);
});
