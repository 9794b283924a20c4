import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { examineAudit } from '../../src/doctor/doctor.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'doctor-audit-'));
});
afterEach(() => rm(folder, { recursive: true }));

test('a directory that takes files is told with its free space, and left as it was', async () => {
  const finding = await examineAudit(folder);
  expect(finding.saw).toMatch(new RegExp(`^${folder} is writable, \\d+ MiB free$`));
  expect(finding.facts).toEqual({ freeBytes: expect.any(Number) });
  expect([undefined, 'audit-disk-full']).toContain(finding.problem);
  expect(await readdir(folder)).toEqual([]);
});

test('one that does not exist is a warning: the gateway can make it', async () => {
  const directory = join(folder, 'audit', 'log');
  expect(await examineAudit(directory)).toMatchObject({
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
  expect(await examineAudit(directory())).toMatchObject({
    problem: 'audit-not-writable',
    mark: 'fail',
    saw: `cannot create a file in ${obstacle()} (${reason})`,
  });
});
