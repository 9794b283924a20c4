import { execFileSync } from 'node:child_process';
import {
  appendFile,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Verified } from '../../src/audit/reader/verify.ts';
import { type Head, MOST_BATCH } from '../../src/audit/seal.ts';
import { requireRoom } from '../../src/audit/segments/recovery.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  openTestAudit,
  REPLICA,
  recordAccess,
  recordsIn,
  segmentText,
  useFolders,
} from '../support/audit-log.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

const folder = useFolders();
const FIRST = '000000000001.jsonl';

function check(directory: string, heads: readonly Head[] = [], keys: string[] = []): Promise<Verified> {
  const all = [AUDIT_KEY, ...keys].map((key) => auditKeys(new Secret(key)));
  return verified(directory, { keys: all, heads });
}

async function segmentsOf(directory: string): Promise<string[]> {
  return (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
}

async function writeOne(directory: string, change: Parameters<typeof openTestAudit>[1] = {}): Promise<void> {
  const { audit } = await openTestAudit(directory, change);
  expect(await recordAccess(audit)).toBe(true);
  await audit.close();
}

test('continues the chain in the next process', async () => {
  const directory = await folder();
  for (let start = 0; start < 3; start += 1) await writeOne(directory);
  expect((await recordsIn(directory)).map(({ seq }) => seq)).toEqual([1, 2, 3]);
  expect(await check(directory)).toMatchObject({ alterations: [], notes: [], segments: 1, records: 3 });
});

test('creates files for their owner alone', async () => {
  const directory = join(await folder(), 'made');
  await writeOne(directory);
  const modes = await Promise.all(
    ['', REPLICA, `${REPLICA}/${FIRST}`, `${REPLICA}/lock`].map(
      async (name) => (await stat(join(directory, name))).mode & 0o777,
    ),
  );
  expect(modes).toEqual([0o700, 0o700, 0o600, 0o600]);
});

test('sets lines without a seal aside, and records that', async () => {
  const directory = await folder();
  await writeOne(directory);
  const file = join(directory, REPLICA, FIRST);
  const whole = (await readFile(file, 'utf8')).split('\n')[2]?.replace('"seq":1', '"seq":2') ?? '';
  const unsealed = `${whole}\n{"seq":3,"ti`;
  await appendFile(file, unsealed);
  expect((await check(directory)).notes).toMatchObject([
    { segment: FIRST, kind: 'end-unsealed', facts: { lines: 1, bytes: 12 } },
  ]);

  const { audit, logged } = await openTestAudit(directory);
  await audit.close();
  const records = await recordsIn(directory);
  expect(records).toMatchObject([
    { seq: 1, kind: 'access' },
    { seq: 2, kind: 'admin', event: 'recovered', segment: FIRST, line: 5, lines: 1, bytes: unsealed.length },
  ]);
  const aside = String(records[1]?.['file']);
  expect(await readFile(join(directory, REPLICA, aside), 'utf8')).toBe(unsealed);
  expect(logged).toContainEqual(expect.objectContaining({ segment: FIRST, file: aside, afterStop: false }));
  expect(await check(directory)).toMatchObject({
    alterations: [],
    records: 2,
    notes: [
      {
        replica: REPLICA,
        segment: aside,
        kind: 'set-aside',
        facts: { bytes: unsealed.length, lines: 1, line: 5, segment: FIRST },
      },
    ],
  });

  await appendFile(join(directory, REPLICA, aside), 'x');
  expect((await check(directory)).alterations).toMatchObject([{ segment: aside, kind: 'set-aside-altered' }]);
  await rm(join(directory, REPLICA, aside));
  expect((await check(directory)).alterations).toMatchObject([{ segment: aside, kind: 'set-aside-missing' }]);
});

test('wants what was set aside from the oldest segment, also when that is compressed', async () => {
  const directory = await folder();
  await writeOne(directory);
  await appendFile(join(directory, REPLICA, FIRST), '{"seq":2,"ti');
  await writeOne(directory, { segment: { size: 1, age: 1e9, keep: 1e9 } });
  const names = await readdir(join(directory, REPLICA));
  const aside = names.find((name) => name.endsWith('.unsealed')) ?? '';
  expect(names).toContain(`${FIRST}.zst`);
  expect((await check(directory)).alterations).toEqual([]);
  await rm(join(directory, REPLICA, aside));
  expect((await check(directory)).alterations).toMatchObject([{ segment: aside, kind: 'set-aside-missing' }]);
});

test('begins a file anew if its first line is incomplete', async () => {
  const directory = await folder();
  await writeOne(directory);
  await truncate(join(directory, REPLICA, FIRST), 30);
  await writeOne(directory);
  expect(await recordsIn(directory)).toMatchObject([
    { event: 'recovered', bytes: 30, lines: 0 },
    { kind: 'access' },
  ]);
  expect((await check(directory)).alterations).toEqual([]);
});

test('leaves a changed segment as it is, and records that in a new one', async () => {
  const directory = await folder();
  await writeOne(directory);
  const file = join(directory, REPLICA, FIRST);
  const changed = (await readFile(file, 'utf8')).replace('192.0.2.7', '192.0.2.8');
  await writeFile(file, changed);
  const { audit, logged } = await openTestAudit(directory);
  await audit.close();
  const names = (await readdir(join(directory, REPLICA))).filter((each) => each.includes('.jsonl'));
  const [name = ''] = names.sort();
  expect(await segmentText(directory, name)).toBe(changed);
  expect((await recordsIn(directory)).at(-1)).toMatchObject({
    event: 'segment-damaged',
    segment: FIRST,
    error: 'batch-altered',
  });
  expect(logged).toContainEqual(expect.objectContaining({ level: 50, segment: FIRST }));
  expect((await check(directory)).alterations).toMatchObject([{ kind: 'batch-altered' }]);
});

test('begins a new segment with a new key, and the old key verifies the earlier ones', async () => {
  const directory = await folder();
  await writeOne(directory);
  const other = 'f'.repeat(64);
  await writeOne(directory, { key: new Secret(other) });
  expect(await check(directory, [], [other])).toMatchObject({ alterations: [], segments: 2, records: 2 });
  expect((await check(directory)).alterations).toMatchObject([{ kind: 'key-unknown' }]);
});

test('refuses a second writer while the first one runs', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  await expect(openTestAudit(directory)).rejects.toMatchObject({ cause: { errstr: 'database is locked' } });
  const other = await openTestAudit(directory, { replica: 'r2' });
  await other.audit.close();
  await audit.close();
  await writeOne(directory);
});

test('gives the folder to one of several processes that start at once', async () => {
  const directory = await folder();
  const opened = await Promise.allSettled(Array.from({ length: 8 }, () => openTestAudit(directory)));
  const won = opened.filter((result) => result.status === 'fulfilled');
  expect(won).toHaveLength(1);
  for (const { value } of won) await value.audit.close();
});

test('closes segments by size and age, and records which ones it retires', async () => {
  const directory = await folder();
  const segment = { size: 1, age: 1e9, keep: 60_000 };
  const { audit } = await openTestAudit(directory, { segment });
  for (let index = 0; index < 4; index += 1) await recordAccess(audit);
  await audit.close();
  const before = await segmentsOf(directory);
  // The time of a file is anybody's to set: it says nothing.
  for (const name of before.slice(0, 2)) await utimes(join(directory, REPLICA, name), 0, 0);
  const idle = await openTestAudit(directory, { segment });
  await idle.audit.close();
  expect(await segmentsOf(directory)).toEqual(before);
  const heads = (await check(directory)).heads;

  const next = await openTestAudit(directory, { segment: { size: 1e9, age: 1, keep: 1 } });
  await until(async () => !(await segmentsOf(directory)).includes(before[1] ?? ''));
  await recordAccess(next.audit);
  await recordAccess(next.audit);
  await next.audit.close();
  const left = await check(directory);
  expect(left).toMatchObject({ alterations: [], notes: [] });
  expect((await check(directory, heads)).alterations).toEqual([]);
  // The record that retired the oldest segment is gone with its own segment; the header of a newer one has its content.
  const last = await openTestAudit(directory, { segment: { size: 1e9, age: 1, keep: 1 } });
  await recordAccess(last.audit);
  await last.audit.close();
  expect((await check(directory, heads)).alterations).toEqual([]);
});

test('reports files in the folder that are no segments, and continues the chain', async () => {
  const directory = await folder();
  await writeOne(directory);
  const place = join(directory, REPLICA);
  const outside = join(directory, 'outside');
  await writeFile(outside, 'mine');
  // Named like newer segments: a link, a pipe, a folder, a number of 15 digits, and one with leading zeros.
  await symlink(outside, join(place, '000000000100.jsonl'));
  execFileSync('mkfifo', [join(place, '000000000200.jsonl')]);
  await mkdir(join(place, '000000000300.jsonl'));
  await writeFile(join(place, '999999999999999.jsonl'), '{"seq":999999999999999,"time"');
  await writeFile(join(place, '0000000000001.jsonl'), 'x\n');
  const { alterations } = await check(directory);
  for (const segment of ['000000000100.jsonl', '000000000200.jsonl', '000000000300.jsonl']) {
    const facts = { reason: expect.stringContaining('is not a regular file') };
    expect(alterations).toContainEqual(
      expect.objectContaining({ segment, kind: 'segment-unreadable', facts }),
    );
  }
  expect(alterations).toContainEqual(
    expect.objectContaining({ segment: '0000000000001.jsonl', kind: 'file-name-invalid' }),
  );
  await writeOne(directory);
  expect(await readFile(outside, 'utf8')).toBe('mine');
  expect((await recordsIn(directory)).map(({ seq, event, kind }) => [seq, event ?? kind])).toEqual([
    [1, 'access'],
    [2, 'recovered'],
    [3, 'recovered'],
    [4, 'recovered'],
    [5, 'recovered'],
    [6, 'access'],
  ]);
});

test('seals a large batch in parts of bounded size', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const target = `/x?ids=${'a'.repeat(500)}`;
  await Promise.all(Array.from({ length: 4000 }, () => recordAccess(audit, { target })));
  await audit.close();
  const text = await readFile(join(directory, REPLICA, FIRST), 'utf8');
  const sizes = text.split(/\{"seal":.*\n/).map(({ length }) => length);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(MOST_BATCH);
  expect(Math.max(...sizes)).toBeGreaterThan(MOST_BATCH / 2);
  expect(await check(directory)).toMatchObject({ alterations: [], records: 4000 });
});

test('lines without a seal are not copied to a disk that has no room for them', async () => {
  const directory = await folder();
  await requireRoom(directory, 1);
  await expect(requireRoom(directory, 2 ** 60)).rejects.toMatchObject({ code: 'ENOSPC' });
});
