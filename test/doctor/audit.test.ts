import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { examineAudit } from '../../src/doctor/audit.ts';

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

test('one that does not exist, or is a file', async () => {
  await writeFile(join(folder, 'file'), '');
  for (const name of ['none', 'file']) {
    expect((await examineAudit(join(folder, name))).problem).toBe('audit-missing');
  }
});

test('one that takes no files', async () => {
  // Not even root makes files there.
  expect(await examineAudit('/proc')).toMatchObject({
    problem: 'audit-not-writable',
    mark: 'fail',
    saw: expect.stringMatching(/^\/proc takes no file \(E[A-Z]+\)$/),
  });
});
