import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { useFolders } from '../../support/audit-log.ts';
import { type Ended, gateway } from '../../support/program.ts';
import { needPackages } from '../../support/system-packages.ts';

const makeFolder = useFolders();
let folder: string;
let file: string;
beforeEach(async () => {
  folder = await makeFolder();
  file = join(folder, 'gateway.yaml');
  await writeFile(
    file,
    `sealed: { file: s.age, identity: { file: id.txt } }
credentials:
  a: { username: { env: U }, password: { sealed: a } }
  bb: { username: { env: U }, password: { env: P }, next: { password: { file: next } } }
deployments: { d: { baseUrl: "https://a.example", match: { host: a }, credential: a } }
anonymous: true
`,
  );
  await writeFile(join(folder, 'next'), 'hunter9\n', { mode: 0o600 });
  await utimes(join(folder, 'next'), new Date(), new Date(Date.now() - 49 * 3_600_000));
});

const credential = (words: readonly string[], input: string | Uint8Array = ''): Promise<Ended> =>
  gateway(['credential', ...words, '--config', file], { U: 'me', P: 'hunter8' }, input);

test('secrets are sealed, listed, rotated and promoted, and none is ever printed', async () => {
  const sealed = join(folder, 's.age');
  const ended = [
    await credential(['seal', 'a', '--new-identity'], 'hunter2\n'),
    await credential(['seal', 'other'], 'hunter3'),
    await credential(['rotate', 'a'], 'hunter4\n'),
    await credential(['list']),
    await credential(['rotate', 'a', '--promote']),
    await credential(['list', '--json']),
    await gateway(['check', '--config', file], { U: 'me', P: 'hunter8' }),
  ];
  expect(ended.map(({ status, stderr }) => [status, stderr])).toEqual(ended.map(() => [0, '']));
  const [made, other, rotated, list, promoted, json] = ended.map(({ stdout }) => stdout);
  expect(made).toBe(
    `${join(folder, 'id.txt')}: a new identity; keep a copy in a safe place\n${sealed}: sealed a, version 1\n`,
  );
  expect(other).toBe(`${sealed}: sealed other, version 1\n`);
  expect(rotated).toBe(`${sealed}: a, version 1 is in use, version 2 waits\n`);
  expect(list?.replaceAll(/ \d s {2,}/g, ' 0 s  ')).toBe(
    [
      'NAME  STATE    VERSION  AGE  FROM',
      'a     current  1        0 s  sealed a',
      'a     next     2        0 s  sealed a',
      'bb    current  1        -    env P',
      `bb    next     2        2 d  file ${folder}/next`,
      '-     unused   1        0 s  sealed other',
      '',
    ].join('\n'),
  );
  expect(promoted).toBe(`${sealed}: a, version 2 is in use now\n`);
  expect(JSON.parse(json ?? '')[0]).toEqual({
    name: 'a',
    state: 'current',
    version: '2',
    from: ['sealed a'],
    changedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
  });
  expect(JSON.stringify(ended)).not.toMatch(/hunter|SECRET-KEY/);
  expect((await readdir(folder)).toSorted()).toEqual(['gateway.yaml', 'id.txt', 'next', 's.age']);
  expect(((await stat(sealed)).mode | (await stat(join(folder, 'id.txt'))).mode) & 0o777).toBe(0o600);
});

test('a next version is withdrawn, with a sentence when there is none', async () => {
  const sealed = join(folder, 's.age');
  await credential(['seal', 'a', '--new-identity'], 'hunter2');
  await credential(['rotate', 'a'], 'hunter4');
  const said =
    'a, version 1 stays, the next version is withdrawn; a gateway that uses it already keeps it, and logs a warning';
  expect(await credential(['rotate', 'a', '--withdraw'])).toEqual({
    status: 0,
    stdout: `${sealed}: ${said}\n`,
    stderr: '',
  });
  expect((await credential(['list'])).stdout).not.toMatch(/^a +next/m);
  expect(await credential(['rotate', 'a', '--withdraw'])).toEqual({
    status: 1,
    stdout: '',
    stderr: 'a has no next version, so there is nothing to withdraw\n',
  });
  for (const option of ['--withdraw', '--promote']) {
    const { status, stderr } = await credential(['rotate', 'b', option]);
    expect([status, stderr]).toEqual([
      1,
      'the sealed file has no entry b: credential list shows its entries\n',
    ]);
  }
  const both = await credential(['rotate', 'a', '--withdraw', '--promote']);
  expect([both.status, both.stderr]).toEqual([2, expect.stringContaining('cannot be used with')]);
});

test('an entry is removed when nothing names it any more', async () => {
  const sealed = join(folder, 's.age');
  await credential(['seal', 'a', '--new-identity'], 'hunter2');
  await credential(['seal', 'old'], 'hunter3');
  expect(await credential(['remove', 'a'])).toEqual({
    status: 2,
    stdout: '',
    stderr: `${file}:3:40 credentials.a.password: still names the sealed entry a, so nothing was removed: change it first, and reload\n`,
  });
  expect(await credential(['remove', 'old'])).toEqual({
    status: 0,
    stdout: `${sealed}: old is removed\n`,
    stderr: '',
  });
  expect(await credential(['remove', 'old'])).toEqual({
    status: 1,
    stdout: '',
    stderr: 'there is no entry old: credential list shows all\n',
  });
  const { stdout } = await credential(['list']);
  expect(stdout.split('\n').map((line) => line.split(' ', 1)[0])).toEqual(['NAME', 'a', 'bb', 'bb', '']);
});

test.each([
  ['Latin-1', Buffer.from('p\u00e4ssword', 'latin1')],
  ['UTF-16', Buffer.from('\ufeffsecret\r\n', 'utf16le')],
])('a secret in %s is refused, as it is in a file', async (_title, input) => {
  await credential(['seal', 'a', '--new-identity'], 'hunter2');
  const before = await readFile(join(folder, 's.age'));
  for (const command of ['seal', 'rotate']) {
    expect(await credential([command, 'a'], input)).toEqual({
      status: 2,
      stdout: '',
      stderr: 'stdin is not UTF-8 text: save it as UTF-8\n',
    });
  }
  expect(await readFile(join(folder, 's.age'))).toEqual(before);
});

test('the passphrase of a key in the sealed file counts as used', async () => {
  await credential(['seal', 'a', '--new-identity'], 'hunter2');
  await credential(['seal', 'key'], 'hunter3');
  const text = await readFile(file, 'utf8');
  await writeFile(
    file,
    text.replace(
      'credential: a }',
      'credential: a, tls: { certFile: c, keyFile: k, keyPassphrase: { sealed: key } } }',
    ),
  );
  expect((await credential(['list'])).stdout).not.toContain('unused');
  const { status, stderr } = await credential(['remove', 'key']);
  expect([status, stderr]).toEqual([
    2,
    expect.stringContaining(' deployments.d.tls.keyPassphrase: still names'),
  ]);
});

describe('what cannot be done is told in one sentence', () => {
  test.each<[string, string[], string, 1 | 2, RegExp]>([
    [
      'no identity yet',
      ['seal', 'a'],
      'x',
      2,
      /gateway\.yaml:1:34 sealed\.identity: .*--new-identity make one\n$/,
    ],
    ['no secret', ['seal', 'a'], '\n', 2, /^no secret came on stdin: /],
    ['more than a secret', ['seal', 'a'], 'x'.repeat(65_537), 2, /^stdin has more than 65536 bytes: /],
    ['a name that is no word', ['seal', 'a b'], 'x', 2, /^error: command-argument value 'a b' is invalid/],
    [
      'a list of what is not there',
      ['list'],
      '',
      2,
      /gateway\.yaml:1:17 sealed\.file: .*s\.age does not exist: run credential seal NAME, or with --new-identity/,
    ],
  ])('%s', async (_title, words, input, status, message) => {
    const ended = await credential(words, input);
    expect([ended.status, ended.stdout]).toEqual([status, '']);
    expect(ended.stderr).toMatch(message);
    expect(ended.stderr).not.toMatch(/\n {4}at /);
  });

  test('nothing to promote', async () => {
    await credential(['seal', 'a', '--new-identity'], 'x');
    expect(await credential(['rotate', 'a', '--promote'])).toEqual({
      status: 1,
      stdout: '',
      stderr: 'nothing waits to be promoted: run credential rotate a first\n',
    });
  });

  test('a next version that would be lost', async () => {
    await credential(['seal', 'a', '--new-identity'], 'x');
    await credential(['rotate', 'a'], 'y');
    const { status, stdout, stderr } = await credential(['seal', 'a'], 'z');
    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^version 2 of a waits, and would be lost: /);
    expect((await credential(['list'])).stdout).toMatch(/^a +next +2 /m);
  });

  test('no sealed file', async () => {
    await writeFile(file, (await readFile(file, 'utf8')).replace(/^sealed.*\n/, ''));
    const { status, stderr } = await credential(['seal', 'a'], 'x');
    expect([status, stderr]).toEqual([
      2,
      `${file} names no sealed file: give file and identity under sealed\n`,
    ]);
  });
});

test('check tells of a sealed file that cannot be opened once, and of each entry that is missing', async () => {
  const more = `  c: { username: { sealed: c }, password: { sealed: a } }\n`;
  const text = (await readFile(file, 'utf8')).replace(
    'deployments:',
    `${more}redis: { url: "redis://r", password: { sealed: r } }\ndeployments:`,
  );
  await writeFile(file, text);
  const check = () => gateway(['check', '--config', file], { U: 'me', P: 'hunter8' });
  await credential(['seal', 'a', '--new-identity'], 'hunter2');
  const missing = (name: string) => `${folder}/s.age has no entry ${name}: run credential seal ${name}`;
  expect((await check()).stdout.split('\n')).toEqual([
    `${file}:5:18 credentials.c.username: ${missing('c')}`,
    `${file}:6:38 redis.password: ${missing('r')}`,
    '',
  ]);
  await rm(join(folder, 'id.txt'));
  expect((await check()).stdout.split('\n')).toEqual([
    expect.stringMatching(/:1:34 sealed\.identity: .*id\.txt does not exist/),
    '',
  ]);
});

describe('on a terminal', () => {
  /** The command in a pseudo-terminal of its own; what it showed, and its exit status. */
  async function typed(keys: string): Promise<{ shown: string; status: number }> {
    const command = `${process.execPath} src/cli/digest-gateway.js credential seal a --new-identity --config ${file}`;
    needPackages('bsdutils');
    const child = spawn('script', ['-qec', command, '/dev/null'], { stdio: 'pipe' });
    const seen: string[] = [];
    child.stdout.on('data', (chunk: Buffer) => {
      seen.push(chunk.toString());
      if (seen.join('').endsWith('Secret for a: ')) child.stdin.write(keys);
    });
    const [[status]] = await Promise.all([once(child, 'close') as Promise<[number]>, text(child.stderr)]);
    return { shown: seen.join(''), status };
  }

  test('the secret is asked for, and not shown', async () => {
    const { shown, status } = await typed('hunter2\r');
    expect([status, shown]).toEqual([
      0,
      expect.stringMatching(/^Secret for a: \r\n.*sealed a, version 1\r\n$/s),
    ]);
    expect(shown).not.toContain('hunter2');
    expect((await credential(['list'])).stdout).toMatch(/^a +current +1/m);
  });

  test('Ctrl-C gives up, and changes nothing', async () => {
    const { shown, status } = await typed('hunt\u0003');
    expect([status, shown]).toEqual([1, 'Secret for a: \r\ngiven up: nothing was changed\r\n']);
    expect((await readdir(folder)).toSorted()).toEqual(['gateway.yaml', 'next']);
  });
});
