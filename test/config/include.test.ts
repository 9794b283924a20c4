import { execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { chmod, mkdir, mkdtemp, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { ConfigError } from '../../src/config/issues.ts';
import { loadConfig, loadLocated } from '../../src/config/load.ts';
import { loadInBackground } from '../../src/config/load-background.ts';
import { OtherFilesError, SetupSource } from '../../src/setup/setup.ts';
import { gateway } from '../support/program.ts';

let folder: string;
let main: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'include-'));
  main = join(folder, 'gateway.yaml');
  await mkdir(join(folder, 'parts'));
});
afterEach(() => rm(folder, { recursive: true }));

const write = (name: string, text: string) => writeFile(join(folder, name), text);
const part = (name: string) => join(folder, 'parts', name);
const client = (id: string, address: string, deployment = 'd') => ({
  id,
  identify: { addresses: [address] },
  allow: [{ deployment }],
});
const deployment = (name: string, credential = 'a') => ({
  [name]: { baseUrl: `https://${name}.example`, match: { pathPrefix: `/${name}/` }, credential },
});
const credential = (name: string) => ({ [name]: { username: { env: 'U' }, password: { file: 'secret' } } });

const WHOLE = {
  include: 'parts/*.yaml',
  clients: [client('c0', '10.0.0.0')],
  credentials: credential('a'),
  deployments: deployment('d'),
};

async function writeAll(parts: Record<string, object | string>, top: object = WHOLE): Promise<void> {
  await write('gateway.yaml', stringify(top));
  for (const [name, content] of Object.entries(parts)) {
    await write(join('parts', name), typeof content === 'string' ? content : stringify(content));
  }
}

const issues = async (file = main) => {
  const error = await loadConfig(file).then(() => new Error('none'), Error);
  return error.message
    .replace(/^ConfigError: /, '')
    .replaceAll(`${folder}/`, '')
    .split('\n');
};

describe('with a clock that is behind', () => {
  const DAY_MS = 86_400_000;
  const dayIn = (days: number): string => new Date(Date.now() + days * DAY_MS).toISOString().slice(0, 10);
  const observed = { ...client('o', '10.0.0.9'), mode: { observe: true, until: dayIn(100) } };

  test.each([
    ['of the configuration', 'gateway.yaml', {}, { ...WHOLE, clients: [observed] }],
    ['of an included file', 'parts/o.yaml', { 'o.yaml': { clients: [observed] } }, WHOLE],
  ])('rules may be observed for 90 days from the last change %s', async (_where, file, parts, top) => {
    await writeAll(parts, top);
    expect(await issues()).toEqual([
      expect.stringMatching(/mode\.until: is more than 90 days ahead, .* up to /),
    ]);
    const changed = new Date(Date.now() + 20 * DAY_MS);
    await utimes(join(folder, file), changed, changed);
    expect((await loadConfig(main)).clients.at(-1)?.id).toBe('o');
  });
});

describe('included files', () => {
  test('are merged in order of their names, behind the configuration', async () => {
    await writeAll({
      'b.yaml': { clients: [client('c2', '10.0.0.2')], deployments: deployment('e', 'b') },
      'a.yaml': { clients: [client('c1', '10.0.0.1', 'e')], credentials: credential('b') },
      'empty.yaml': '# nothing yet\n',
      '.hidden.yaml': 'not: read\n',
      'a.yaml~': 'not: read\n',
    });
    const { clients, credentials, deployments } = await loadConfig(main);
    expect(clients.map(({ id }) => id)).toEqual(['c0', 'c1', 'c2']);
    expect(Object.keys(deployments)).toEqual(['d', 'e']);
    // Names of files start at the folder of the configuration, wherever they are written.
    expect(credentials['b']?.password).toEqual({ file: join(folder, 'secret') });
    const { config, close } = await loadInBackground(main, {});
    await close();
    expect(config).toEqual(await loadConfig(main));
  });

  test('may have all that the configuration itself does not', async () => {
    await writeAll(
      { 'a.yaml': { credentials: credential('a'), deployments: deployment('d') } },
      { include: ['parts/a.yaml', 'parts/*.yaml'], anonymous: true },
    );
    expect(Object.keys((await loadConfig(main)).deployments)).toEqual(['d']);
  });

  test('report issues in their own file', async () => {
    await writeAll({
      'a.yaml': 'clients:\n  - { id: c1, identify: { addresses: [10.0.0.1] }, allows: [] }\n',
      'b.yaml': 'deployments:\n  e: { baseUrl: https://e.example, match: { host: e }, credential: none }\n',
    });
    expect(await issues()).toEqual([
      'parts/a.yaml:2:52 clients[0].allows: does not exist: the nearest key is allow',
      'parts/b.yaml:2:68 deployments.e.credential: names a credential that does not exist: credentials has a',
    ]);
  });

  test('report an entry that is in two files, with both places', async () => {
    await writeAll({
      'a.yaml': 'clients:\n- { id: c0, identify: { addresses: [10.0.0.1] } }\ndeployments:\n  e: {}\n',
      'b.yaml':
        'deployments:\n  e: { baseUrl: https://e.example, match: { host: e }, credential: a }\ncredentials:\n  a: {}\n',
    });
    const found = await issues();
    const remedy = 'keep one of the two, or give each its own name';
    expect(found.filter((issue) => issue.includes('too'))).toEqual([
      `parts/a.yaml:2:9 clients[0].id: is in gateway.yaml:3:9, too: ${remedy}`,
      `parts/b.yaml:2:3 deployments.e: is in parts/a.yaml:4:3, too: ${remedy}`,
      `parts/b.yaml:4:3 credentials.a: is in gateway.yaml:10:3, too: ${remedy}`,
    ]);
  });

  test('have no other sections, and include nothing themselves', async () => {
    await writeAll({ 'a.yaml': 'include: parts/b.yaml\nlisten: {}\n', 'b.yaml': '- clients\n' });
    const remedy = 'which has clients, credentials, deployments only: move it to gateway.yaml, or correct it';
    expect(await issues()).toEqual([
      `parts/a.yaml:1:1 include: is not for an included file, ${remedy}`,
      `parts/a.yaml:2:1 listen: is not for an included file, ${remedy}`,
      'parts/b.yaml:1:1 (file): must be a mapping of keys to values',
    ]);
  });

  test('with broken syntax are named, and nothing is said of what they may have had', async () => {
    await writeAll({ 'a.yaml': 'deployments: { e: [\n', 'b.yaml': 'clients: 5\n' });
    expect(await issues()).toEqual([
      'parts/a.yaml:1:19 (file): the bracket that opens here is not closed: close it',
      'parts/b.yaml:1:10 clients: must be a list of clients',
    ]);
  });

  test.each([
    ['clients: 5', 'gateway.yaml:2:10 clients: must be a list of clients'],
    ['credentials:', 'gateway.yaml:2:1 credentials: is empty: give a mapping of keys to values'],
    ['deployments: []', 'gateway.yaml:2:14 deployments: must be a mapping'],
  ])('do not hide that the configuration has %s', async (line, issue) => {
    await writeAll({ 'a.yaml': { deployments: deployment('d'), credentials: credential('a') } });
    await write('gateway.yaml', `include: parts/*.yaml\n${line}\n`);
    expect((await issues()).join('\n')).toContain(issue);
    await write('gateway.yaml', '- include\n');
    expect(await issues()).toEqual(['gateway.yaml:1:1 (file): must be a mapping of keys to values']);
  });

  test('have a bounded size', async () => {
    await writeAll({ 'a.yaml': '', 'b.yaml': '' });
    await truncate(part('a.yaml'), 17 * 2 ** 20);
    expect(await issues()).toEqual([
      'gateway.yaml:1:10 include: parts/a.yaml is larger than 16777216 bytes: name the right file',
    ]);
    for (const name of ['a.yaml', 'b.yaml']) await truncate(part(name), 10 * 2 ** 20);
    expect((await issues()).filter((issue) => issue.startsWith('gateway.yaml'))).toEqual([
      'gateway.yaml:1:10 include: parts/b.yaml and the files before it have more than 16777216 bytes',
    ]);
  }, 120_000);

  test('have a bounded number', async () => {
    await writeAll(Object.fromEntries(Array.from({ length: 1001 }, (_, at) => [`${at}.yaml`, ''])));
    expect(await issues()).toEqual([
      'gateway.yaml:1:10 include: matches more than 1000 files: write several entries into one file',
    ]);
  });

  test('are regular files: a pipe, a device or a folder is an issue at once', async () => {
    await writeAll({});
    await promisify(execFile)('mkfifo', [part('a.yaml')]);
    await symlink('/dev/zero', part('b.yaml'));
    await mkdir(part('c.yaml'));
    await symlink('nowhere', part('d.yaml'));
    expect(await issues()).toEqual([
      ...['a', 'b', 'c'].map(
        (name) => `gateway.yaml:1:10 include: parts/${name}.yaml is not a regular file: name one`,
      ),
      'gateway.yaml:1:10 include: parts/d.yaml does not exist: create it, or name another file',
    ]);
  });

  test('of a gateway are written by this user and root only, also behind a link', async () => {
    await writeAll({ 'a.yaml': '' });
    await write('elsewhere', 'clients: []\n');
    await chmod(join(folder, 'elsewhere'), 0o666);
    await symlink('../elsewhere', part('b.yaml'));
    await expect(loadLocated(main, {})).rejects.toThrow(`${part('b.yaml')} can be written by others`);
    // A pipeline that checks needs no guard: nothing is used of them.
    expect((await loadLocated(main)).config.clients).toHaveLength(1);
    await rm(part('b.yaml'));
    const other = (process.getuid?.() ?? 0) + 1;
    if (other === 1) await promisify(execFile)('chown', ['7', part('a.yaml')]);
    await expect(loadLocated(main, { uid: other })).rejects.toThrow('belongs to another user');
  });
});

test('a configuration of a gateway that any user can write is refused, one of a group is not', async () => {
  await writeAll({ 'a.yaml': '' });
  await chmod(main, 0o664);
  expect((await loadLocated(main, {})).config.clients).toHaveLength(1);
  await chmod(main, 0o646);
  await expect(loadLocated(main, {})).rejects.toThrow(`${main}:1:1 (file): can be written by any user`);
  expect((await loadLocated(main)).config.clients).toHaveLength(1);
});

describe('include', () => {
  test.each([
    ['a name without a wildcard', 'parts/none.yaml', 'parts/none.yaml does not exist'],
    ['a wildcard in a folder', 'par*/a.yaml', 'must be the name of a file, in whose last part *'],
    ['no name', '""', 'must be the name of a file'],
  ])('is refused with %s', async (_title, include, issue) => {
    await write('gateway.yaml', stringify(WHOLE).replace('parts/*.yaml', include));
    expect((await issues()).join('\n')).toContain(`gateway.yaml:1:10 include: ${issue}`);
  });

  test('warns of a pattern that matches nothing', async () => {
    await writeAll({}, { ...WHOLE, include: ['parts/*.yaml', 'none.d/*.yaml'] });
    const { status, stdout } = await gateway(['check', '--no-secrets', '--config', main]);
    expect([status, stdout.replaceAll(`${folder}/`, '').split('\n').slice(0, 2)]).toEqual([
      0,
      [
        'gateway.yaml:2:5 include[0]: matches no file: there is no parts/*.yaml (warning)',
        'gateway.yaml:3:5 include[1]: matches no file: there is no none.d/*.yaml (warning)',
      ],
    ]);
  });

  test('of a configuration on stdin starts at the current folder', async () => {
    await writeAll({ 'a.yaml': 'clients: 5\n' });
    const include = relative('.', part('*.yaml'));
    const text = stringify({ ...WHOLE, include });
    const { status, stdout } = await gateway(['check', '--no-secrets', '--config', '-'], {}, text);
    expect([status, stdout]).toEqual([
      2,
      `${relative('.', part('a.yaml'))}:1:10 clients: must be a list of clients\n`,
    ]);
  });

  test('leaves the configuration itself out', async () => {
    await writeAll({}, { ...WHOLE, include: '*.yaml' });
    await write('other.yaml', stringify({ clients: [client('c1', '10.0.0.1')] }));
    expect((await loadConfig(main)).clients.map(({ id }) => id)).toEqual(['c0', 'c1']);
  });

  test('several wildcards match names with these parts in this order', async () => {
    await writeAll(
      { 'team-a.d.yaml': '', 'team-b.yaml': 'x', 'other-a.d.yaml': 'x', 'team.yaml': 'x' },
      { ...WHOLE, include: 'parts/team-*.*.yaml' },
    );
    expect((await loadConfig(main)).clients).toHaveLength(1);
  });
});

test('a source notices files that change, come and go', async () => {
  await writeAll({ 'a.yaml': { clients: [client('c1', '10.0.0.1')] } }, { ...WHOLE, anonymous: false });
  await writeFile(join(folder, 'secret'), 'hunter2', { mode: 0o600 });
  const source = new SetupSource(main, { environment: { U: 'me' } });
  await source.readAtStart();
  expect(await source.isChanged()).toBe(false);
  for (const change of [
    () => write('parts/b.yaml', '# new\n'),
    () => write('parts/a.yaml', stringify({ clients: [client('other', '10.0.0.1')] })),
    () => rm(part('b.yaml')),
  ]) {
    await change();
    expect(await source.isChanged()).toBe(true);
    await source.readAgain();
    expect(await source.isChanged()).toBe(false);
  }
});

test('a source reads its files once for the hash of each of their versions', async () => {
  await writeAll({ 'a.yaml': { clients: [client('c1', '10.0.0.1')] } }, { ...WHOLE, anonymous: false });
  await writeFile(join(folder, 'secret'), 'hunter2', { mode: 0o600 });
  const source = new SetupSource(main, { environment: { U: 'me' } });
  let threads = 0;
  const onThread = (): void => {
    threads += 1;
  };
  subscribe('worker_threads', onThread);
  try {
    const { filesHash } = await source.readAtStart();
    expect([await source.hash(), await source.hash(), threads]).toEqual([filesHash, filesHash, 0]);
    await write('parts/a.yaml', stringify({ clients: [client('other', '10.0.0.1')] }));
    const changed = await source.hash();
    expect(changed).not.toBe(filesHash);
    expect([await source.hash(), threads]).toEqual([changed, 1]);
    // The setup that is in use is still the first one.
    expect(await source.isChanged()).toBe(true);
    await write('parts/a.yaml', stringify({ clients: [client('third', '10.0.0.1')] }));
    await expect(source.readAgain(String(changed))).rejects.toThrow(OtherFilesError);
    const { filesHash: third } = await source.readAgain();
    expect([await source.hash(), threads]).toEqual([third, 3]);
    await write('parts/b.yaml', 'clients: {');
    expect(await source.hash()).toBeInstanceOf(ConfigError);
    await rm(part('b.yaml'));
    expect(await source.hash()).toBe(third);
  } finally {
    unsubscribe('worker_threads', onThread);
  }
});
