import { appendFile, readdir, readFile, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { type Verified, verify } from '../../src/audit/verify.ts';
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

const folder = useFolders();
const FIRST = '000000000001.jsonl';

function check(directory: string, ...keys: string[]): Promise<Verified> {
  const all = [AUDIT_KEY, ...keys].map((key) => auditKeys(new Secret(key)));
  return verify({ directory, keys: all, heads: [], onBytes: () => undefined });
}

async function writeOne(directory: string, change: Parameters<typeof openTestAudit>[1] = {}): Promise<void> {
  const { audit } = await openTestAudit(directory, change);
  expect(await recordAccess(audit)).toBe(true);
  await audit.close();
}

test('the next process goes on with the chain', async () => {
  const directory = await folder();
  for (let start = 0; start < 3; start += 1) await writeOne(directory);
  expect((await recordsIn(directory)).map(({ seq }) => seq)).toEqual([1, 2, 3]);
  expect(await check(directory)).toMatchObject({ alterations: [], notes: [], segments: 1, records: 3 });
});

test('files are for their owner alone', async () => {
  const directory = join(await folder(), 'made');
  await writeOne(directory);
  const modes = await Promise.all(
    ['', REPLICA, `${REPLICA}/${FIRST}`, `${REPLICA}/lock`].map(
      async (name) => (await stat(join(directory, name))).mode & 0o777,
    ),
  );
  expect(modes).toEqual([0o700, 0o700, 0o600, 0o600]);
});

test('a torn last line is kept aside, and what is whole before it is sealed with a record that says so', async () => {
  const directory = await folder();
  await writeOne(directory);
  const file = join(directory, REPLICA, FIRST);
  const sealedText = await readFile(file, 'utf8');
  const whole = sealedText.split('\n')[1]?.replace('"seq":1', '"seq":2') ?? '';
  await appendFile(file, `${whole}\n{"seq":3,"ti`);
  expect((await check(directory)).notes).toEqual([
    expect.stringContaining('1 records under no seal and 12 bytes'),
  ]);

  const { audit, logged } = await openTestAudit(directory);
  await audit.close();
  const [, unsealed, recovered] = await recordsIn(directory);
  expect(unsealed).toMatchObject({ seq: 2, kind: 'access' });
  expect(recovered).toMatchObject({ seq: 3, kind: 'admin', event: 'recovered', unsealed: 1, tornBytes: 12 });
  const torn = (await readdir(join(directory, REPLICA))).find((name) => name.endsWith('.torn')) ?? '';
  expect(await readFile(join(directory, REPLICA, torn), 'utf8')).toBe('{"seq":3,"ti');
  expect(logged.some(({ msg }) => String(msg).includes('ended in the middle of a record'))).toBe(true);
  expect(await check(directory)).toMatchObject({ alterations: [], records: 3 });
});

test('a file whose first line is torn is begun anew', async () => {
  const directory = await folder();
  await writeOne(directory);
  await truncate(join(directory, REPLICA, FIRST), 30);
  await writeOne(directory);
  expect(await recordsIn(directory)).toMatchObject([
    { event: 'recovered', tornBytes: 30 },
    { kind: 'access' },
  ]);
  expect((await check(directory)).alterations).toEqual([]);
});

test('a segment that was changed stays as it is, and a new one says so', async () => {
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
  expect((await recordsIn(directory)).at(-1)).toMatchObject({ event: 'segment-damaged', segment: FIRST });
  expect(logged.map(({ msg }) => msg)).toContain('the audit log was changed: run audit verify');
  expect((await check(directory)).alterations).toHaveLength(1);
});

test('a new key begins a new segment, and the old key still verifies what it sealed', async () => {
  const directory = await folder();
  await writeOne(directory);
  const other = 'f'.repeat(64);
  await writeOne(directory, { key: new Secret(other) });
  expect(await check(directory, other)).toMatchObject({ alterations: [], segments: 2, records: 2 });
  expect((await check(directory)).alterations).toHaveLength(1);
});

test('a second writer is refused while the first is there, and not after it', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  await expect(openTestAudit(directory)).rejects.toThrow('belongs to another gateway that is running');
  const other = await openTestAudit(directory, { replica: 'r2' });
  await other.audit.close();
  await audit.close();
  await writeOne(directory);
});

test('of several that start at once, one gets the folder', async () => {
  const directory = await folder();
  const opened = await Promise.allSettled(Array.from({ length: 8 }, () => openTestAudit(directory)));
  const won = opened.filter((result) => result.status === 'fulfilled');
  expect(won).toHaveLength(1);
  for (const { value } of won) await value.audit.close();
});

test('segments are closed by size and by age, and leave when they are old enough, which the chain knows', async () => {
  const directory = await folder();
  const segment = { size: 1, age: 1e9, keep: 60_000 };
  const { audit } = await openTestAudit(directory, { segment });
  for (let index = 0; index < 4; index += 1) await recordAccess(audit);
  await audit.close();
  const files = async () =>
    (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
  const before = await files();
  for (const name of before.slice(0, 2)) await utimes(join(directory, REPLICA, name), 0, 0);

  const next = await openTestAudit(directory, { segment: { ...segment, size: 1e9, age: 1 } });
  await until(async () => !(await files()).includes(before[1] ?? ''));
  await recordAccess(next.audit);
  await recordAccess(next.audit);
  await next.audit.close();
  expect((await files()).length).toBeGreaterThan(3);
  expect(await check(directory)).toMatchObject({ alterations: [], notes: [] });
});
