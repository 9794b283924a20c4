import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdir, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from '@jest/globals';
import type { PseudonymOptions } from '../../../src/audit/audit.ts';
import type { AccessFacts } from '../../../src/audit/record.ts';
import { main } from '../../../src/cli/main.ts';
import { asRoot } from '../../support/as-root.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { gateway } from '../../support/program.ts';
import { repository } from '../../support/repository.ts';

const folder = useFolders();
const MONTH = new Date().toISOString().slice(0, 7);

/** A log with pseudonyms of these requests, and its configuration. */
async function place(per: PseudonymOptions['per'], ...records: Partial<AccessFacts>[]) {
  const directory = await folder();
  const at = (name: string): string => join(directory, name);
  await writeFile(at('key'), AUDIT_KEY, { mode: 0o600 });
  await writeFile(
    at('c.yaml'),
    `
credentials: { a: { username: { env: U }, password: { env: P } } }
deployments:
  submissions:
    baseUrl: https://a.example
    match: { pathPrefix: /api }
    credential: a
    operations: { authors: { method: GET, path: /api/x, parameters: { ids: quoted-list } } }
clients: [{ id: reporting, identify: { addresses: [192.0.2.7] }, allow: [{ deployment: submissions, parameters: { ids: { max: 5 } } }] }]
audit:
  directory: log
  keyFile: key
  parameters: [ids]
  pseudonyms: { keysDirectory: keys, fields: [address, parameters.ids], per: ${per} }
`,
  );
  const pseudonyms = { keysDirectory: at('keys'), fields: ['address', 'parameters.ids'], per };
  const { audit } = await openTestAudit(at('log'), { pseudonyms });
  for (const record of records) await recordAccess(audit, record);
  await audit.close();
  const config = ['--config', at('c.yaml')];
  return {
    forget: (...args: string[]) => gateway(['audit', 'forget', ...config, ...args]),
    run: (command: string, ...args: string[]) => gateway([...command.split(' '), ...config, ...args]),
    config,
    keys: join(at('keys'), REPLICA),
    files: async () =>
      (await readdir(join(at('keys'), REPLICA))).map((name) => name.replace(/^[\w-]{12}/, 'ID')),
  };
}

/** Runs `audit forget` as at a terminal, where somebody presses keys. */
async function forgetAtTerminal(config: readonly string[], keys: string) {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const [stdout, stderr] = [new PassThrough(), Object.assign(new PassThrough(), { isTTY: true })];
  stdin.write(keys);
  const io = { stdin, stdout, stderr, env: {} };
  const status = await main(['audit', 'forget', ...config, '--month', MONTH], io);
  stderr.end();
  return { status, stderr: await text(stderr) };
}

describe('audit forget', () => {
  test('destroys the keys of a month, and no command shows the values any more', async () => {
    const { forget, run, files } = await place('month', { requestId: 'q1' });
    for (const command of [
      'audit search --json',
      'audit search --address 192.0.2.7',
      'audit search --id A',
    ]) {
      expect((await run(command)).stdout).toContain('192.0.2.7');
    }
    for (const command of ['audit tail', 'audit tail --json', 'audit export', 'audit usage --by address']) {
      expect((await run(command)).stdout).toContain('192.0.2.7');
    }
    for (const command of ['audit search --json', 'audit tail', 'audit export']) {
      const { stdout } = await run(command, '--as-recorded');
      expect([stdout.includes('ps1:'), stdout.includes('192.0.2.7')]).toEqual([true, false]);
    }
    const { status, stdout, stderr } = await forget('--month', MONTH, '--yes');
    expect([status, stdout]).toEqual([
      0,
      expect.stringMatching(new RegExp(`^destroyed: key [\\w-]{12} of ${MONTH} in ${REPLICA}\n$`)),
    ]);
    expect(stderr).toContain('1 key destroyed. Destroy it in backups of');
    expect(await files()).toEqual(['ID.forgotten']);
    for (const command of ['audit search --json', 'audit tail', 'audit export', 'audit usage --by address']) {
      const shown = (await run(command)).stdout;
      expect([shown.includes('ps1:'), shown.includes('192.0.2.7')]).toEqual([true, false]);
    }
    expect((await run('audit search --address 192.0.2.7')).stdout).not.toContain('q1');
    expect(await run('audit verify')).toMatchObject({ status: 0, stdout: expect.stringContaining(': ok') });
    expect((await forget('--month', MONTH, '--yes')).status).toBe(1);
  });

  test('run by root, leaves a note that the user of the gateway can read', async () => {
    const { config, keys } = await place('month', {});
    await asRoot('chown', '-R', '65534:65533', keys);
    closing.push(async () => void (await asRoot('chown', '-R', `${process.getuid?.()}`, keys)));
    const program = join(repository, 'src/cli/digest-gateway.js');
    await asRoot(process.execPath, program, 'audit', 'forget', ...config, '--month', MONTH, '--yes');
    const note = await asRoot('ls', keys);
    expect(note).toMatch(/^\S+\.forgotten$/);
    expect(await asRoot('stat', '--format=%u %g', join(keys, note))).toBe('65534 65533');
  });

  test('destroys keys whose folder is a link, and does not leave out a folder that is gone', async () => {
    const { forget, keys, files } = await place('month', { requestId: 'q1' });
    const moved = await folder();
    await rename(keys, moved);
    await symlink(moved, keys);
    expect(await forget('--month', MONTH, '--yes')).toMatchObject({ status: 0 });
    expect(await files()).toEqual(['ID.forgotten']);
    await rm(moved, { recursive: true });
    expect(await forget('--month', MONTH, '--yes')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining(`${keys} is a link that leads to no folder`),
    });
  });

  test('destroys the keys of one subject, which it does not print', async () => {
    const { forget, run } = await place(
      'address',
      { requestId: 'q1' },
      { requestId: 'q2', address: '192.0.2.8' },
    );
    const { status, stdout, stderr } = await forget('--subject', '192.0.2.7', '--yes');
    expect([status, stdout]).toEqual([
      0,
      expect.stringMatching(/^destroyed: key [\w-]{12} of the address in r1\n$/),
    ]);
    expect(stdout + stderr).not.toContain('192.0.2');
    const rows = (await run('audit search --json')).stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(rows.map(({ address }) => address)).toEqual([expect.stringMatching(/^ps1:/), '192.0.2.8']);
  });

  test('says what to do where there is nothing to destroy', async () => {
    const { forget, run } = await place('month', {});
    const nothing = await forget('--subject', '192.0.2.7', '--yes');
    expect(nothing).toMatchObject({ status: 1, stdout: '' });
    expect(nothing.stderr).toContain(
      'has no key of that subject: nothing was destroyed; with per: month, give --month',
    );
    expect((await forget('--month', '2020-01', '--yes')).stderr).toContain('has no key of 2020-01');
    expect(await forget('--month', '2020-13')).toMatchObject({ status: 2 });
    expect(await forget()).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('give --month or --subject'),
    });
    expect(await forget('--month', MONTH)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('Give --yes: there is no terminal to ask at'),
    });
    expect((await run('audit search')).stdout).toContain('192.0.2.7');
  });

  test('ends what was interrupted when a key was overwritten and not removed', async () => {
    const { forget, run, keys, files } = await place('month', { requestId: 'q1' });
    const [name = ''] = await readdir(keys);
    const destroyed = { scope: 'month', month: MONTH, destroyed: new Date().toISOString() };
    await writeFile(join(keys, name.replace(/key$/, 'forgotten')), JSON.stringify(destroyed), {
      mode: 0o600,
    });
    await writeFile(join(keys, name), randomBytes(100));
    expect(await forget('--month', MONTH, '--yes')).toMatchObject({
      status: 0,
      stdout: `destroyed: key ${name.slice(0, -'.key'.length)}, which was begun before\n`,
    });
    expect(await files()).toEqual(['ID.forgotten']);
    expect((await run('audit search')).stderr).not.toContain('holds no key');
  });

  test('neither waits for a pipe with the name of a destroyed key nor fills the memory for a large file', async () => {
    const { forget, keys, files } = await place('month', { requestId: 'q1' });
    const destroyed = (id: string) => writeFile(join(keys, `${id}.forgotten`), '{}', { mode: 0o600 });
    await destroyed('AAAAAAAAAAAA');
    await writeFile(join(keys, 'AAAAAAAAAAAA.key'), '', { mode: 0o600 });
    await truncate(join(keys, 'AAAAAAAAAAAA.key'), 2 ** 40);
    const month = ['--month', MONTH, '--yes'];
    expect(await forget(...month)).toMatchObject({ status: 0 });
    await destroyed('BBBBBBBBBBBB');
    execFileSync('mkfifo', [join(keys, 'BBBBBBBBBBBB.key')]);
    expect(await forget(...month)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('BBBBBBBBBBBB.key is not a regular file'),
    });
    expect((await files()).toSorted()).toEqual(['ID.forgotten', 'ID.forgotten', 'ID.forgotten', 'ID.key']);
  });

  test('asks at a terminal, and destroys nothing without a yes', async () => {
    const { config, files } = await place('month', {});
    const refused = await forgetAtTerminal(config, 'no\r');
    expect(refused).toMatchObject({ status: 1, stderr: expect.stringContaining('nothing was destroyed') });
    expect(await files()).toEqual(['ID.key']);
    const agreed = await forgetAtTerminal(config, 'yes\r');
    expect(agreed).toMatchObject({
      status: 0,
      stderr: expect.stringContaining('Destroy 1 key? Nobody can read'),
    });
    expect(await files()).toEqual(['ID.forgotten']);
  });

  test.each([
    ['Ctrl-C', '\u0003'],
    ['Ctrl-D', '\u0004'],
  ])('destroys nothing after %s', async (_title, keys) => {
    const { config, files } = await place('month', {});
    const { status, stderr } = await forgetAtTerminal(config, keys);
    expect([status, stderr]).toEqual([1, expect.stringMatching(/nothing was destroyed\n$/)]);
    expect(stderr).not.toContain('AbortError');
    expect(await files()).toEqual(['ID.key']);
  });

  test('makes replay and learn count the values as unknown', async () => {
    const { forget, run } = await place('month', { requestId: 'q1' });
    const replay = async () => {
      const { stdout } = await run('policy replay --from 30d --json');
      return JSON.parse(stdout).groups.map(({ verdict, code }: Record<string, string>) => [verdict, code]);
    };
    expect(await replay()).toEqual([['allowed', '']]);
    expect((await run('policy learn --from 30d --client reporting')).stdout).toContain('ids: { max: 1 }');
    await forget('--month', MONTH, '--yes');
    expect(await replay()).toEqual([['unknown', 'parameter']]);
    const learnt = await run('policy learn --from 30d --client reporting');
    // The limit of the present rule.
    expect(learnt.stdout).toContain('ids: { max: 5 }');
  });
});
