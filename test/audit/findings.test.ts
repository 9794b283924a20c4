import { cp, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type FindingKind, findingKinds } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { formatHead, type Head, LARGEST_BATCH } from '../../src/audit/seal.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  openTestAudit,
  REPLICA,
  recordAccess,
  segmentText,
  useFolders,
} from '../support/audit-log.ts';
import { verified } from '../support/verified-log.ts';

const OTHER_KEY = 'f'.repeat(64);
const SMALL = { size: 1, age: 1e9, keep: 1e9 };
const folder = useFolders();
/** A log of a segment for each of five records: header, its seal, the record, its seal. */
let original: string;

beforeAll(async () => {
  original = await mkdtemp(join(tmpdir(), 'findings-'));
  await write(original, 5);
});
afterAll(() => rm(original, { recursive: true }));

async function write(directory: string, records: number, change: Parameters<typeof openTestAudit>[1] = {}) {
  const { audit } = await openTestAudit(directory, { segment: SMALL, ...change });
  for (let index = 0; index < records; index += 1) await recordAccess(audit);
  await audit.close();
  return audit;
}

async function copy(): Promise<string> {
  const directory = await folder();
  await cp(original, directory, { recursive: true });
  return directory;
}

async function segmentsOf(directory: string, replica = REPLICA): Promise<string[]> {
  return (await readdir(join(directory, replica))).filter((name) => name.includes('.jsonl')).sort();
}

const head = (seq: number): Head => ({ replica: REPLICA, seq, hmac: 'x'.repeat(43) });
const at = (lines: readonly string[], index: number): string => lines[index] ?? '';
/** A record of half a mebibyte. */
const large = (seq: number): string =>
  `{"seq":${seq},"time":"2026-01-01T00:00:00.000Z","kind":"access","path":"${'a'.repeat(2 ** 19)}"}`;

const changes: [FindingKind, number, object, (lines: string[]) => string[]][] = [
  ['header-invalid', 1, {}, (lines) => lines.with(0, 'x')],
  [
    'segment-out-of-order',
    1,
    { first: 99, expected: 2 },
    (lines) => lines.with(0, at(lines, 0).replace('"first":2', '"first":99')),
  ],
  ['seal-range-invalid', 4, {}, (lines) => lines.with(3, at(lines, 3).replace('[2,2]', '[2,3]'))],
  ['errors-omitted', 23, {}, (lines) => lines.toSpliced(2, 0, ...Array<string>(25).fill('x'))],
  ['lines-unsealed', 3, { lines: 1 }, (lines) => lines.slice(0, -1)],
  ['segment-unsealed', 1, {}, (lines) => lines.slice(0, 1)],
  [
    'batch-too-large',
    5,
    {},
    (lines) => [...lines, ...Array.from({ length: LARGEST_BATCH / 2 ** 19 }, (_, index) => large(3 + index))],
  ],
];

test.each(changes)('%s', async (kind, line, facts, change) => {
  const directory = await copy();
  const name = at(await segmentsOf(directory), 1);
  const segment = name.replace('.zst', '');
  const lines = (await segmentText(directory, name)).trimEnd().split('\n');
  await rm(join(directory, REPLICA, name));
  await writeFile(join(directory, REPLICA, segment), `${change(lines).join('\n')}\n`);
  const { alterations } = await verified(directory);
  expect(alterations).toContainEqual(
    expect.objectContaining({ replica: REPLICA, segment, line, kind, facts }),
  );
});

test('segment-renamed', async () => {
  const directory = await copy();
  const [name = ''] = (await segmentsOf(directory)).slice(-1);
  const segment = '000000000042.jsonl';
  await rename(join(directory, REPLICA, name), join(directory, REPLICA, segment));
  expect((await verified(directory)).alterations).toMatchObject([
    { segment, line: 1, kind: 'segment-renamed', facts: { first: Number.parseInt(name, 10) } },
  ]);
});

test('line-torn', async () => {
  const directory = await copy();
  const [, name = ''] = await segmentsOf(directory);
  const segment = name.replace('.zst', '');
  const text = await segmentText(directory, name);
  await rm(join(directory, REPLICA, name));
  await writeFile(join(directory, REPLICA, segment), `${text}abc`);
  expect((await verified(directory)).alterations).toMatchObject([
    { segment, line: text.split('\n').length, kind: 'line-torn', facts: { bytes: 3 } },
  ]);
});

test('end-altered, head-missing', async () => {
  const directory = await copy();
  const end = (await verified(directory)).heads[0]?.seq ?? 0;
  const facts = { seq: end, source: '--head' };
  expect((await verified(directory, { heads: [head(end)] })).alterations).toMatchObject([
    { replica: REPLICA, segment: '', line: 0, kind: 'end-altered', facts },
  ]);
  await rm(join(directory, REPLICA, at(await segmentsOf(directory), 0)));
  expect((await verified(directory, { heads: [head(1)] })).alterations).toMatchObject([
    { kind: 'segment-missing', facts: { last: 1 } },
    { segment: '', line: 0, kind: 'head-missing', facts: { seq: 1, source: '--head' } },
  ]);
});

test('head-retired', async () => {
  const directory = await copy();
  await write(directory, 1, { segment: { size: 1e9, age: 1e9, keep: 1 } });
  expect(await segmentsOf(directory)).not.toContain('000000000001.jsonl.zst');
  expect(await verified(directory, { heads: [head(1)] })).toMatchObject({
    alterations: [],
    notes: [{ replica: REPLICA, segment: '', kind: 'head-retired', facts: { seq: 1 } }],
  });
});

test('retired-unchecked', async () => {
  const directory = await copy();
  const [retired = ''] = await segmentsOf(directory);
  const keys = [AUDIT_KEY, OTHER_KEY].map((key) => auditKeys(new Secret(key)));
  // The header under the new key tells the second process how old the segments are.
  for (let start = 0; start < 2; start += 1) {
    await write(directory, 1, { key: new Secret(OTHER_KEY), segment: { size: 1e9, age: 1e9, keep: 1 } });
  }
  const { alterations, notes } = await verified(directory, { keys });
  expect(alterations).toEqual([]);
  const facts = { segment: retired, key: keys[0]?.id };
  expect(notes).toContainEqual(
    expect.objectContaining({ replica: REPLICA, kind: 'retired-unchecked', facts }),
  );
});

test('head-ahead', async () => {
  const directory = await folder();
  const worker = `${REPLICA}@1`;
  const primary = await openTestAudit(directory, { segment: SMALL });
  const { head: ahead } = await write(directory, 2, { replica: worker });
  if (ahead === undefined) throw new Error('nothing is sealed');
  await primary.audit.adminWritten('worker-heads', { heads: [formatHead(ahead)] });
  await recordAccess(primary.audit);
  await primary.audit.close();
  // The copy lacks the newest segments.
  const [primaryNewest = ''] = (await segmentsOf(directory)).slice(-1);
  await rm(join(directory, REPLICA, primaryNewest));
  const [, ...later] = await segmentsOf(directory, worker);
  for (const name of later) await rm(join(directory, worker, name));
  const facts = { seq: ahead.seq, source: `the log of ${REPLICA}` };
  expect(await verified(directory, { isCopy: true })).toMatchObject({
    alterations: [],
    notes: [{ replica: worker, segment: '', kind: 'head-ahead', facts }],
  });
  // An attacker who cuts off the log of a worker can cut off that of its primary, too.
  expect((await verified(directory)).alterations).toMatchObject([{ replica: worker, kind: 'log-truncated' }]);
});

test('each kind is the subject of a test', async () => {
  const root = new URL('..', import.meta.url);
  const names = (await readdir(root, { recursive: true })).filter((name) => name.endsWith('.test.ts'));
  const texts = await Promise.all(names.map((name) => readFile(new URL(name, root), 'utf8')));
  const asserted = texts.join('\n');
  const isAsserted = (kind: FindingKind): boolean => new RegExp(`['\\[ ]${kind}['\\]\`]`).test(asserted);
  expect(findingKinds().filter(([kind]) => !isAsserted(kind))).toEqual([]);
});
