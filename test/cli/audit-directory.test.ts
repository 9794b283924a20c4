import { chmod, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, test } from '@jest/globals';
import { SetupSource } from '../../src/setup/setup.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
  await writeFile(join(folder, 'key'), 'ab'.repeat(32), { mode: 0o600 });
  await writeFile(join(folder, 'file'), '');
});

const SECRETS = { U: 'user', P: 'word' };

async function configured(directory: string): Promise<string> {
  const file = join(folder, 'gateway.yaml');
  const audit = `audit: { directory: ${directory}, replica: r, keyFile: key }`;
  const ports = 'listen: { port: 0 }\ncontrol: { port: 0 }';
  await writeFile(file, [CREDENTIALS, DEPLOYMENTS, CLIENTS, audit, ports].join('\n'));
  return file;
}

test.each([
  ['/proc/audit', '/proc/audit/r cannot be made: /proc belongs to the kernel; name another one'],
  ['/sys/audit', '/sys/audit/r cannot be made: /sys belongs to the kernel; name another one'],
  [
    'file',
    'FOLDER/file/r cannot be written to: FOLDER/file/r is not a folder, or leads through a file; name another folder',
  ],
])(
  'check and serve say in one sentence why %s is no directory for the audit log',
  async (directory, wanted) => {
    const file = await configured(directory);
    const line = `${file}:4:21 audit.directory: ${wanted.replaceAll('FOLDER', folder)}`;
    const check = await gateway(['check', '--config', file], SECRETS);
    expect([check.status, check.stdout]).toEqual([2, `${line}\n`]);
    const serve = await gateway(['serve', '--config', file], SECRETS);
    expect([serve.status, JSON.parse(serve.stderr)]).toMatchObject([2, { level: 'error', msg: line }]);
  },
);

test('check and serve say in one sentence why the keys of pseudonyms cannot be used', async () => {
  const file = await configured('new, pseudonyms: { keysDirectory: file }');
  const wanted = `${folder}/file/r cannot be written to: ${folder}/file/r is not a folder`;
  const check = await gateway(['check', '--config', file], SECRETS);
  expect(check).toMatchObject({ status: 2, stdout: expect.stringContaining(wanted) });
  expect(check.stdout).toContain('audit.pseudonyms.keysDirectory: ');
});

test.each([
  ['r', 0o755, 'FOLDER cannot be used: other users may use it: run chmod 700 on it'],
  [
    'r/AAAAAAAAAAAA.key',
    0o600,
    'FOLDER cannot be used: FOLDER/AAAAAAAAAAAA.key holds no key of pseudonyms: restore it, or remove it if it is lost',
  ],
])(
  'check, doctor and serve say why the keys of pseudonyms cannot be used: %s',
  async (name, mode, wanted) => {
    const file = await configured('new, pseudonyms: { keysDirectory: keys }');
    await mkdir(join(folder, 'keys', 'r'), { recursive: true, mode: 0o700 });
    if (name !== 'r') await writeFile(join(folder, 'keys', name), 'cut off');
    await chmod(join(folder, 'keys', name), mode);
    const line = `audit.pseudonyms.keysDirectory: ${wanted.replaceAll('FOLDER', `${folder}/keys/r`)}`;
    const check = await gateway(['check', '--config', file], SECRETS);
    expect(check).toMatchObject({ status: 2, stdout: expect.stringContaining(`${line}\n`) });
    const doctor = await gateway(['doctor', '--config', file], SECRETS);
    expect(doctor).toMatchObject({ status: 2, stderr: expect.stringContaining(line) });
    const serve = await gateway(['serve', '--config', file], SECRETS);
    expect(serve).toMatchObject({ status: 2, stderr: expect.stringContaining(line) });
  },
);

test('check names the pseudonym keys that a worker could not use', async () => {
  const file = await configured('new, pseudonyms: { keysDirectory: keys }');
  for (const name of ['r@2', 'r@3', 'r2@1']) {
    await mkdir(join(folder, 'keys', name), { recursive: true, mode: 0o700 });
    await writeFile(join(folder, 'keys', name, 'AAAAAAAAAAAA.key'), 'cut off', { mode: 0o600 });
  }
  const text = await readFile(file, 'utf8');
  const issues = async (workers: number) => {
    await writeFile(file, `${text}\nworkers: ${workers}`);
    const { stdout } = await gateway(['check', '--config', file], SECRETS);
    return Array.from(stdout.matchAll(/keysDirectory: (\S+) cannot be used/g), ([, name]) => name);
  };
  expect(await issues(1)).toEqual([]);
  expect(await issues(2)).toEqual([join(folder, 'keys', 'r@2')]);
});

test('a reload is not refused for a key of pseudonyms that the gateway does not use, and a start is', async () => {
  const file = await configured('new, pseudonyms: { keysDirectory: keys }');
  const source = new SetupSource(file, { environment: SECRETS });
  await source.readAtStart();
  await mkdir(join(folder, 'keys', 'r'), { recursive: true, mode: 0o700 });
  await writeFile(join(folder, 'keys', 'r', 'AAAAAAAAAAAA.key'), 'cut off', { mode: 0o600 });
  const { audit } = await source.readAgain();
  expect(audit?.pseudonyms?.keysDirectory).toBe(join(folder, 'keys'));
  await expect(source.readAtStart()).rejects.toThrow('AAAAAAAAAAAA.key holds no key of pseudonyms');
});

test('check leaves nothing behind in a directory that can be made', async () => {
  const { status } = await gateway(['check', '--config', await configured('new/audit')], SECRETS);
  expect([status, await readdir(folder)]).toEqual([0, ['file', 'gateway.yaml', 'key']]);
});

test('the commands that read the log say in one sentence that a folder of it cannot be reached', async () => {
  const file = await configured('log');
  await mkdir(join(folder, 'log', 'r'), { recursive: true });
  const link = join(folder, 'log', 'r@1');
  await symlink('absent', link);
  for (const command of ['verify', 'search', 'tail', 'usage', 'export']) {
    expect([command, await gateway(['audit', command, '--config', file], SECRETS)]).toMatchObject([
      command,
      {
        status: 1,
        stdout: '',
        stderr: `${link} is a link that leads to no folder that this user can reach: mount it, or remove the link\n`,
      },
    ]);
  }
});
