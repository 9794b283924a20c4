import { chmod, copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, test } from '@jest/globals';
import { served } from '../config/issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { gateway, runCommand } from '../support/program.ts';

const folder = useFolders();

async function place(): Promise<{ directory: string; config: string; key: string }> {
  const directory = await folder();
  const [config, key] = [join(directory, 'gateway.yaml'), join(directory, 'key')];
  await writeFile(key, `${AUDIT_KEY}\n`, { mode: 0o600 });
  await writeFile(
    config,
    served(`${CREDENTIALS}\n${DEPLOYMENTS}\naudit: { directory: log, keyFile: key }\n`),
  );
  return { directory, config, key };
}

async function written(directory: string): Promise<string> {
  const { audit } = await openTestAudit(join(directory, 'log'));
  for (let index = 0; index < 3; index += 1) await recordAccess(audit);
  await audit.close();
  const [name = ''] = (await readdir(join(directory, 'log', REPLICA))).filter((file) =>
    file.endsWith('.jsonl'),
  );
  return join(directory, 'log', REPLICA, name);
}

test('audit verify reports an intact log, and prints its head', async () => {
  const { directory, config } = await place();
  await written(directory);
  const { status, stdout, stderr } = await gateway(['audit', 'verify', '--config', config]);
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^head r1:3:[\w-]{43}\n.*: ok — 1 replica, 3 records, 4 seals, 1 segment\n$/);
  const head = /head (\S+)/.exec(stdout)?.[1] ?? '';
  expect(await gateway(['audit', 'verify', '--config', config, '--head', head])).toMatchObject({ status: 0 });
  expect((await gateway(['audit', 'verify', '--config', config, '--head', 'x'])).status).toBe(2);
});

test('names of files in the folder neither end a line nor change a terminal', async () => {
  const { directory, config } = await place();
  const file = await written(directory);
  await writeFile(file, (await readFile(file, 'utf8')).replace('"seq":2', '"seq":7'));
  const folderName = 'r2\u009b2J\nlog: ok';
  await mkdir(join(directory, 'log', folderName));
  await writeFile(join(directory, 'log', REPLICA, '\x1b[2J\nlog: ok — 1 replica\x1b[8m.unsealed'), '');
  await writeFile(join(directory, 'log', folderName, '000000000001.jsonl'), 'x\n');
  const verify = await gateway(['audit', 'verify', '--config', config]);
  const json = await gateway(['audit', 'verify', '--config', config, '--json']);
  const search = await gateway(['audit', 'search', '--config', config, '--client', 'nobody']);
  const text = [verify, json, search].map(({ stdout, stderr }) => stdout + stderr).join('');
  expect(verify.status).toBe(1);
  expect(verify.stdout).toContain('\\u001b[2J\\u000alog: ok');
  expect(text.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u);
  expect(text).not.toMatch(/^log: ok/m);
});

test('audit verify reports alterations with segment and line, as text and as JSON', async () => {
  const { directory, config } = await place();
  const file = await written(directory);
  await writeFile(file, (await readFile(file, 'utf8')).replace('"seq":2', '"seq":7'));
  const { status, stdout } = await gateway(['audit', 'verify', '--config', config]);
  expect(status).toBe(1);
  expect(stdout).toMatch(
    /^r1\/000000000001\.jsonl:5: has number 7 where 2 belongs: 5 records before it are missing \[records-missing\]\n/,
  );
  expect(stdout).toContain('ALTERED');
  const json = await gateway(['audit', 'verify', '--config', config, '--json']);
  const where = { replica: 'r1', segment: '000000000001.jsonl', line: 5 };
  const facts = { seq: 7, expected: 2 };
  expect([json.status, JSON.parse(json.stdout)]).toMatchObject([
    1,
    {
      ok: false,
      alterations: [
        { ...where, kind: 'records-missing', facts },
        { ...where, kind: 'batch-altered' },
      ],
      records: 2,
    },
  ]);
});

test('audit verify fails if there is no log, or none in the configuration', async () => {
  const { directory, config } = await place();
  expect(await gateway(['audit', 'verify', '--config', config])).toEqual({
    status: 1,
    stdout: `${join(directory, 'log')}: there is no audit log here\n`,
    stderr: '',
  });
  await writeFile(config, served(`${CREDENTIALS}\n${DEPLOYMENTS}`));
  expect(await gateway(['audit', 'verify', '--config', config])).toMatchObject({
    status: 2,
    stderr: expect.stringMatching(/ audit: /),
  });
});

test('check reports what is wrong with the key of the audit log', async () => {
  const { config, key } = await place();
  const environment = { U: 'me', P: 'p' };
  expect((await gateway(['check', '--config', config], environment)).status).toBe(0);
  await chmod(key, 0o644);
  const open = await gateway(['check', '--config', config], environment);
  expect(open).toMatchObject({
    status: 2,
    stdout: expect.stringMatching(/:3:\d+ audit\.keyFile: .*\bchmod 600\b/),
  });
  await chmod(key, 0o600);
  await writeFile(key, 'hunter2');
  const wrong = await gateway(['check', '--config', config], environment);
  expect(wrong.stdout).toContain(
    `${key} does not hold a key: name the file of the key, or move this one away and make one with (umask 077; openssl rand -hex 32 > ${key})`,
  );
  expect(wrong.stdout).not.toContain('hunter2');
  await rm(key);
  const missing = await gateway(['check', '--config', config], environment);
  expect(missing.stdout).toContain(
    `${key} does not exist: make it with (umask 077; openssl rand -hex 32 > ${key})`,
  );
});

test('the command that makes a missing key of the audit log works in any folder', async () => {
  const { config } = await place();
  const folder = join(dirname(config), "d'un ü");
  await mkdir(folder);
  const moved = join(folder, 'gateway.yaml');
  await copyFile(config, moved);
  const check = () => gateway(['check', '--config', moved], { U: 'me', P: 'p' });
  const [, command = ''] = /make it with (.*)$/m.exec((await check()).stdout) ?? [];
  expect(await runCommand('sh', ['-c', command])).toEqual({ status: 0, printed: '' });
  expect(await check()).toMatchObject({ status: 0 });
});

test('an earlier key that cannot be used is named as --key has it, without a command that makes one', async () => {
  const { config, key } = await place();
  const other = join(dirname(key), 'other');
  const verify = () => gateway(['audit', 'verify', '--config', config, '--key', other]);
  const missing = `--key: ${other} does not exist: create it, or name another file\n`;
  expect(await verify()).toEqual({ status: 2, stdout: '', stderr: missing });
  await writeFile(other, 'hunter2', { mode: 0o600 });
  const none = `--key: ${other} does not hold a key\n`;
  expect(await verify()).toEqual({ status: 2, stdout: '', stderr: none });
});
