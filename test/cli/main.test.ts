import { execFile } from 'node:child_process';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { useFolders } from '../support/audit-log.ts';
import { gateway, SOURCE_PROGRAM } from '../support/program.ts';
import { repository } from '../support/repository.ts';

const execute = promisify(execFile);
const makeFolder = useFolders();
const manifest = JSON.parse(await readFile('package.json', 'utf8')) as {
  version: string;
  engines: { node: string };
};

describe('usage', () => {
  test('--version tells the version of the package', async () => {
    expect(await gateway(['--version'])).toEqual({ status: 0, stdout: `${manifest.version}\n`, stderr: '' });
  });

  test('--help goes to stdout', async () => {
    const { status, stdout, stderr } = await gateway(['--help']);
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^Usage: digest-gateway /);
    expect(stdout).toMatch(/^ {2}check /m);
    expect(stdout).toMatch(/^Begin with demo\..*^Exit status: 0 done, 1 something is wrong, 2 wrong usage/ms);
  });

  test('--help of a command shows the defaults that say something', async () => {
    const { stdout } = await gateway(['audit', 'tail', '--help']);
    expect(stdout).toContain('(default: 10)');
    for (const command of [['audit', 'verify'], ['audit', 'export'], ['client', 'add'], ['serve']]) {
      expect((await gateway([...command, '--help'])).stdout).not.toMatch(/default: (?:\[\]|none|false)/);
    }
  });

  test('no command is wrong usage', async () => {
    const { status, stdout, stderr } = await gateway([]);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^Usage: digest-gateway /);
  });

  test.each([
    ['a command that does not exist', ['chekc'], "error: unknown command 'chekc'\n(Did you mean check?)"],
    ['an option that does not exist', ['check', '--confg', 'x'], 'error: '],
    ['an option that is missing', ['check'], "error: required option '--config <file>' not specified"],
    ['an option without value', ['check', '--config'], "error: option '--config <file>' argument missing"],
    ['an argument too much', ['check', '--config', 'x', 'y'], "error: too many arguments for 'check'"],
  ])('%s is wrong usage', async (_title, args, message) => {
    const { status, stdout, stderr } = await gateway(args);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr.startsWith(message)).toBe(true);
  });
});

describe('help', () => {
  test.each([
    [[], 'Usage: digest-gateway [options] [command]\n'],
    [['check'], 'Usage: digest-gateway check [options]\n'],
    [['audit'], 'Usage: digest-gateway audit [options] [command]\n'],
    [['audit', 'search'], 'Usage: digest-gateway audit search [options]\n'],
  ])('prints the usage of %j', async (names, usage) => {
    const { status, stdout, stderr } = await gateway(['help', ...names]);
    expect([status, stdout.startsWith(usage), stderr]).toEqual([0, true, '']);
  });

  test.each([
    [['nope'], 'error: there is no command nope: there are serve, check, '],
    [
      ['audit', 'nope'],
      'error: there is no command audit nope: there are verify, search, tail, export, usage, key, prove, check-proof, forget, accept-clock\n',
    ],
    [['check', 'nope'], 'error: there is no command check nope: run help check\n'],
  ])('%j is wrong usage', async (names, message) => {
    const { status, stdout, stderr } = await gateway(['help', ...names]);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr.startsWith(message)).toBe(true);
  });
});

describe('wrong usage', () => {
  test.each([
    [['check'], 'check'],
    [['audit', 'search', '--nope'], 'audit search'],
    [['client', 'add'], 'client add'],
    [['policy', 'explain', 'GET'], 'policy explain'],
    [['serve', '--nope'], 'serve'],
  ])('of %j points at its own help', async (args, command) => {
    const { status, stderr } = await gateway(args);
    expect([status, stderr]).toEqual([2, expect.stringContaining(`(see digest-gateway ${command} --help)`)]);
  });

  test('of the program points at the help of all commands', async () => {
    expect((await gateway(['--nope'])).stderr).toContain('(see digest-gateway --help)');
  });
});

describe('names of files', () => {
  const command = ['check', '--no-secrets', '--config', 'minimal.yaml'];
  const config = join(repository, 'config');

  test('start where npm was called, which runs the script of the package elsewhere', async () => {
    const { stdout } = await execute('npm', ['run', '-s', 'gateway', '--', ...command], { cwd: config });
    expect(stdout).toContain('minimal.yaml: ok');
  });

  test('start in the current folder otherwise, also under a script of another package', async () => {
    const folder = await makeFolder();
    await writeFile(join(folder, 'package.json'), '{}');
    await copyFile(join(config, 'minimal.yaml'), join(folder, 'minimal.yaml'));
    const env = {
      npm_lifecycle_event: 'gateway',
      npm_package_json: join(folder, 'package.json'),
      INIT_CWD: '/',
    };
    const { stdout } = await execute(process.execPath, [SOURCE_PROGRAM, ...command], { cwd: folder, env });
    expect(stdout).toContain('minimal.yaml: ok');
  });
});

test('config schema prints the file that the package has', async () => {
  const { status, stdout } = await gateway(['config', 'schema']);
  expect([status, stdout]).toEqual([0, await readFile('config/schema.json', 'utf8')]);
});
