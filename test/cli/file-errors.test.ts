import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from '@jest/globals';
import { openAuditLog } from '../../src/app/compose.ts';
import { errorCode, fileErrorText, messageOf } from '../../src/base/error-code.ts';
import { createLog } from '../../src/base/log.ts';
import { auditOptions, useFolders } from '../support/audit-log.ts';
import { type Ended, gateway, PROGRAM, runCommand } from '../support/program.ts';

const makeFolder = useFolders();

describe('an error of the file system is one sentence', () => {
  test.each([
    ['a file where a folder should be', ['audit', 'prove', 'x', '--directory', 'FILE'], 'FILE'],
    ['a name behind a file', ['audit', 'key', 'new', '--out', 'FILE/key'], 'FILE/key.pub'],
  ])('%s', async (_title, args, name) => {
    const file = join(await makeFolder(), 'file');
    await writeFile(file, '');
    const { status, stdout, stderr } = await gateway(args.map((arg) => arg.replace('FILE', file)));
    const path = name.replace('FILE', file);
    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toBe(`${path} is not a folder, or leads through a file: name another one\n`);
  });

  test('a sealed file behind a file', async () => {
    const folder = await makeFolder();
    const config = join(folder, 'gateway.yaml');
    await writeFile(
      config,
      [
        'anonymous: true',
        'sealed: { file: gateway.yaml/sealed, identity: { file: identity } }',
        'credentials: { a: { username: { value: u }, password: { sealed: p } } }',
        'deployments: { d: { match: { pathPrefix: / }, baseUrl: https://example.com, credential: a } }',
      ].join('\n'),
    );
    const { status, stderr } = await gateway(['credential', 'seal', 'p', '--config', config], {}, 'secret');
    const beside = `${config}/sealed.new`;
    expect([status, stderr]).toEqual([
      1,
      `${beside} is not a folder, or leads through a file: name another one\n`,
    ]);
  });

  test('a log in a folder that is a file', async () => {
    const file = join(await makeFolder(), 'file');
    await writeFile(file, '');
    const options = auditOptions(file);
    const sentence = `${join(file, options.replica)} is not a folder, or leads through a file: name another one`;
    await expect(openAuditLog(options, createLog(new PassThrough()))).rejects.toThrow(
      `audit.directory: ${sentence}`,
    );
  });

  test('a full disk behind an open file, whose errors do not name it', async () => {
    const error = await writeFile('/dev/full', 'x').catch((reason: unknown) => reason);
    expect(fileErrorText(error, 'out')).toBe('out cannot be written: the disk is full; make room on it');
    expect(fileErrorText(error)).toBeUndefined();
  });

  test('a quota that is used up, for which Node.js has no name', () => {
    const code = 'Unknown system error -122';
    const error = Object.assign(new Error(`${code}: ${code}, write`), { code, errno: -122 });
    expect([errorCode(error), messageOf(error)]).toEqual(['EDQUOT', 'EDQUOT: EDQUOT, write']);
    expect(fileErrorText(error, 'out')).toMatch('out cannot be written: the quota of this user is used up');
  });

  test('files that this user may not use', async () => {
    const folder = await makeFolder();
    await mkdir(join(folder, 'closed'), { mode: 0o000 });
    const commands = [
      ['audit', 'prove', 'x', '--directory', 'closed'],
      ['audit', 'key', 'new', '--out', 'closed/key'],
    ];
    const program = new URL('../support/program.ts', import.meta.url);
    const script = `
      import { gateway } from '${program}';
      // Loads what this user may not read, either.
      await gateway(['audit', 'prove']);
      process.chdir('${folder}');
      // Permissions do not stop root.
      if (process.getuid() === 0) process.setuid(65534);
      const ended = [];
      for (const args of ${JSON.stringify(commands)}) ended.push(await gateway(args));
      process.stdout.write(JSON.stringify(ended));
    `;
    const { printed } = await runCommand(process.execPath, ['--input-type=module', '-e', script]);
    const refused = 'may not be used by this user: give it the permission, or name another one\n';
    expect(JSON.parse(printed) as Ended[]).toEqual([
      { status: 1, stdout: '', stderr: `${join(folder, 'closed')} ${refused}` },
      { status: 1, stdout: '', stderr: `closed/key.pub ${refused}` },
    ]);
  });

  test.each([[['config', 'schema']], [['--help']]])('a full disk behind the output of %j', async (args) => {
    await using full = await open('/dev/full', 'w');
    const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', full.fd, 'pipe'] });
    const [printed, [status]] = await Promise.all([text(child.stderr as never), once(child, 'close')]);
    expect([status, printed]).toEqual([1, 'stdout cannot be written: the disk is full; make room on it\n']);
  });
});
