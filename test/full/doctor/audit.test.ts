import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { examineAudit } from '../../../src/doctor/doctor.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'doctor-audit-'));
});
afterEach(() => rm(folder, { recursive: true }));

test('a directory that takes files is told with its free space, and left as it was', async () => {
  const finding = await examineAudit({ directory: folder, replica: 'r' });
  expect(finding.saw).toMatch(new RegExp(`^${folder} is writable, \\d+ MiB free$`));
  expect(finding.facts).toEqual({ freeBytes: expect.any(Number) });
  expect([undefined, 'audit-disk-full']).toContain(finding.problem);
  expect(await readdir(folder)).toEqual([]);
});

test('one that does not exist is a warning: the gateway can make it', async () => {
  const directory = join(folder, 'audit', 'log');
  expect(await examineAudit({ directory, replica: 'r' })).toMatchObject({
    problem: 'audit-missing',
    mark: 'warn',
    saw: `${directory} does not exist`,
  });
  expect(await readdir(folder)).toEqual([]);
});

test.each([
  // Not even root makes files there.
  ['a directory that takes no files', () => '/proc', () => '/proc', 'no file can be created there'],
  [
    'one that cannot be made',
    () => '/proc/digest-gateway/audit',
    () => '/proc',
    'no file can be created there',
  ],
  ['a file', () => join(folder, 'file'), () => join(folder, 'file'), 'it is not a folder'],
])('%s is a failure', async (_title, directory, obstacle, reason) => {
  await writeFile(join(folder, 'file'), '');
  expect(await examineAudit({ directory: directory(), replica: 'r' })).toMatchObject({
    problem: 'audit-not-writable',
    mark: 'fail',
    saw: `cannot create a file in ${obstacle()} (${reason})`,
  });
});

test('a directory that takes files and no bytes, as on a full disk, is a failure, and left as it was', async () => {
  const script = `
    import { examineAudit } from '${new URL('../../../src/doctor/doctor.ts', import.meta.url)}';
    process.stdout.write(JSON.stringify(await examineAudit({ directory: '${folder}', replica: 'r' })));
  `;
  const limited = [
    '-c',
    'ulimit -f 0; exec "$@"',
    'sh',
    process.execPath,
    '--input-type=module',
    '-e',
    script,
  ];
  expect(JSON.parse(execFileSync('sh', limited, { encoding: 'utf8' }))).toMatchObject({
    problem: 'audit-not-writable',
    mark: 'fail',
    saw: `cannot create a file in ${folder} (EFBIG)`,
  });
  expect(await readdir(folder)).toEqual([]);
});

test.each([
  [
    'a file where its folder should be',
    'r',
    async () => writeFile(join(folder, 'r'), ''),
    'it is not a folder',
  ],
  [
    'a folder where its lock should be',
    'r/lock',
    async () => mkdir(join(folder, 'r', 'lock'), { recursive: true }),
    'it is a folder',
  ],
])('%s keeps the gateway from going on with its log', async (_title, name, make, reason) => {
  await make();
  expect(await examineAudit({ directory: folder, replica: 'r' })).toMatchObject({
    problem: 'audit-not-writable',
    saw: `cannot write to ${join(folder, name)} (${reason})`,
  });
});

test('a link that leads to no folder keeps the gateway from going on with its log', async () => {
  await symlink('absent', join(folder, 'r'));
  expect(await examineAudit({ directory: folder, replica: 'r' })).toMatchObject({
    problem: 'audit-not-writable',
    saw: expect.stringContaining(`${join(folder, 'r')} is a link that leads to no folder`),
  });
});

test.each(['r', 'r/lock', 'r/000000000001.jsonl', 'r@1/lock'])(
  'what another user left, as a start as root does, keeps the gateway from going on with its log: %s',
  async (name) => {
    for (const replica of ['r', 'r@1']) {
      await mkdir(join(folder, replica));
      for (const file of ['lock', '000000000001.jsonl']) await writeFile(join(folder, replica, file), '');
    }
    execFileSync('chmod', ['-R', 'a+rwX', folder]);
    await chmod(join(folder, name), name === 'r' ? 0o555 : 0o444);
    // Permissions do not stop root.
    const script = `
      import { examineAudit } from '${new URL('../../../src/doctor/doctor.ts', import.meta.url)}';
      if (process.getuid() === 0) process.setuid(65534);
      process.stdout.write(JSON.stringify(await examineAudit({ directory: '${folder}', replica: 'r' })));
    `;
    const found = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
    expect(JSON.parse(found)).toMatchObject({
      problem: 'audit-not-writable',
      mark: 'fail',
      saw: `cannot write to ${join(folder, name)} (this user may not write there)`,
    });
  },
);
