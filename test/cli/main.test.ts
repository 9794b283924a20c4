import { readFile } from 'node:fs/promises';
import { describe, expect, test } from '@jest/globals';
import { gateway } from '../support/program.ts';

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
      'error: there is no command audit nope: there are verify, search, tail, export, accept-clock\n',
    ],
    [['check', 'nope'], 'error: there is no command check nope: run help check\n'],
  ])('%j is wrong usage', async (names, message) => {
    const { status, stdout, stderr } = await gateway(['help', ...names]);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr.startsWith(message)).toBe(true);
  });
});

test('config schema prints the file that the package has', async () => {
  const { status, stdout } = await gateway(['config', 'schema']);
  expect([status, stdout]).toEqual([0, await readFile('config/schema.json', 'utf8')]);
});
