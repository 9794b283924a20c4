import { execFileSync } from 'node:child_process';
import { chmod, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { expect, test } from '@jest/globals';
import type { PlacedFinding } from '../../../src/audit/findings.ts';
import { type AuditKeys, auditKeys } from '../../../src/audit/keys.ts';
import type { Query } from '../../../src/audit/reader/query.ts';
import { search } from '../../../src/audit/reader/search.ts';
import { runInThread, searchInThread } from '../../../src/audit/reader/search-thread.ts';
import { recordLine } from '../../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../../src/audit/seal.ts';
import { headerLine, parseHeader, type SegmentHeader } from '../../../src/audit/segments/segment.ts';
import { Secret } from '../../../src/base/secret.ts';
import {
  AUDIT_KEY,
  auditOptions,
  openTestAudit,
  REPLICA,
  recordAccess,
  segmentText,
  useFolders,
} from '../../support/audit-log.ts';
import { until } from '../../support/until.ts';
import { verified } from '../../support/verified-log.ts';

const folder = useFolders();
const DAY_MS = 86_400_000;
const NOBODY = 65_534;

async function searched(directory: string, keys: readonly [AuditKeys, ...AuditKeys[]], query: Query = {}) {
  const errors: PlacedFinding[] = [];
  const said: PlacedFinding[] = [];
  const report = { onUnreadable: (found: PlacedFinding) => errors.push(found), onNote: said.push.bind(said) };
  for await (const _ of search({ directory, keys, query, onBytes: () => undefined, ...report }));
  return { errors, said };
}

test('a header that was changed does not make older segments old enough to be removed', async () => {
  const directory = await folder();
  // So short that a clock that is so far ahead would not be doubted.
  const segment = { size: 1, age: DAY_MS, keep: 5 * DAY_MS };
  const first = await openTestAudit(directory, { segment });
  for (let count = 0; count < 3; count += 1) await recordAccess(first.audit);
  await first.audit.close();
  const names = async (): Promise<string[]> =>
    (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
  const [oldest = '', changed = ''] = await names();
  const path = join(directory, REPLICA, changed);
  const original = await readFile(path);
  const opened = new Date(Date.now() - 6 * DAY_MS).toISOString();
  const text = (await segmentText(directory, changed)).replace(/"opened":"[^"]+"/, `"opened":"${opened}"`);
  await writeFile(path, zstdCompressSync(text));

  await (await openTestAudit(directory, { segment })).audit.close();
  expect(await names()).toContain(oldest);
  // With the header put back, nothing would be missing in a log without its oldest records.
  await writeFile(path, original);
  const { alterations, records } = await verified(directory);
  expect([alterations, records]).toEqual([[], 3]);
});

test('the first retirement after a change of the key finds nothing missing that was retired before', async () => {
  const directory = await folder();
  const names = async (): Promise<string[]> => readdir(join(directory, REPLICA));
  const keeping = { size: 2 ** 28, age: DAY_MS, keep: DAY_MS };
  const first = await openTestAudit(directory, { segment: { ...keeping, size: 1 } });
  for (let count = 0; count < 2; count += 1) await recordAccess(first.audit);
  await first.audit.close();
  // A record says that the oldest segments are retired, and no header does yet.
  const retiring = await openTestAudit(directory, { segment: { ...keeping, keep: 0 } });
  await until(async () => !(await names()).includes('000000000002.jsonl.zst'));
  await retiring.audit.close();
  expect(await segmentText(directory, '000000000003.jsonl')).not.toContain('"retired"');

  const other = 'f'.repeat(64);
  const changed = await openTestAudit(directory, { key: new Secret(other), segment: keeping });
  await recordAccess(changed.audit);
  await changed.audit.close();
  const [key, later] = [auditKeys(new Secret(AUDIT_KEY)), auditKeys(new Secret(other))];
  for (const atHand of [[later], [later, key]] as const) {
    const { errors, said } = await searched(directory, atHand);
    // A search without the former key says that.
    expect(errors.filter(({ kind }) => kind !== 'segment-unchecked')).toEqual([]);
    expect(said).toMatchObject([{ kind: 'records-retired', facts: { first: 3 } }]);
  }
  const unread = await verified(directory, { keys: [later] });
  expect(unread.alterations.map(({ kind }) => kind)).toEqual(['key-unknown']);
  const next = await openTestAudit(directory, {
    key: new Secret(other),
    segment: { ...keeping, keep: 0 },
  });
  await until(async () => !(await names()).some((name) => name.startsWith('000000000003.jsonl')));
  await next.audit.close();
  const keys = [AUDIT_KEY, other].map((key) => auditKeys(new Secret(key)));
  const { alterations, notes } = await verified(directory, { keys });
  expect([alterations, notes]).toMatchObject([[], [{ kind: 'retired-unchecked' }]]);
});

test('a search that reaches back to before the log begins says that records were retired', async () => {
  const directory = await folder();
  const names = async (): Promise<string[]> =>
    (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
  const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
  const first = await openTestAudit(directory, { segment });
  for (let count = 0; count < 2; count += 1) await recordAccess(first.audit);
  await first.audit.close();
  const retiring = await openTestAudit(directory, { segment: { ...segment, size: 2 ** 28, keep: 0 } });
  await until(async () => (await names()).length === 1);
  await retiring.audit.close();
  const [oldest = ''] = await names();
  const text = await segmentText(directory, oldest);
  const opened = /"opened":"([^"]+)"/.exec(text)?.[1] ?? '';
  const facts = { first: Number.parseInt(oldest, 10), opened };
  const retired = { replica: REPLICA, segment: '', kind: 'records-retired', facts };
  const before = { since: '2020-01-01T00:00:00.000Z', until: '2020-01-02T00:00:00.000Z' };
  const keys = [auditKeys(new Secret(AUDIT_KEY))] as const;
  // A record says it, and no header does yet.
  expect(text).not.toContain('"retired"');
  expect(await searched(directory, keys)).toMatchObject({ errors: [], said: [retired] });
  const last = await openTestAudit(directory, { segment });
  for (let count = 0; count < 2; count += 1) await recordAccess(last.audit);
  await last.audit.close();
  expect(await searched(directory, keys, before)).toMatchObject({ errors: [], said: [retired] });
  expect(await searched(directory, keys, { since: opened })).toEqual({ errors: [], said: [] });
  const scope = { directory, keys, keysDirectory: undefined, parameters: [], query: {} };
  const notesOf = async (limit: number): Promise<readonly string[]> => {
    const task = { kind: 'page', limit, after: undefined, budgetMs: 20_000 } as const;
    return (await searchInThread(scope, task, new AbortController().signal)).notes;
  };
  // There are older results, so this page does not reach back to there.
  expect(await notesOf(1)).toEqual([]);
  expect(await notesOf(100)).toEqual([
    `r1: the log begins with record ${facts.first}, at ${opened}: earlier records were removed for their age [records-retired]`,
  ]);
  // What follows the segment does not say that it was retired, too.
  await rm(join(directory, REPLICA, (await names())[0] ?? ''));
  const missing = { kind: 'segment-missing', facts: { last: expect.any(Number) } };
  expect(await searched(directory, keys, before)).toMatchObject({ errors: [missing], said: [] });
});

test('the console says what was altered among any number of logs that begin late, and calls no export cut for those', async () => {
  const directory = await folder();
  const keys = [auditKeys(new Secret(AUDIT_KEY))] as const;
  const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
  const filesOf = async (replica: string): Promise<string[]> =>
    (await readdir(join(directory, replica))).filter((name) => name.includes('.jsonl'));
  const replicas = Array.from({ length: 21 }, (_, worker) => (worker === 0 ? 'r1' : `r1@${worker}`));
  for (const replica of replicas) {
    const first = await openTestAudit(directory, { replica, segment });
    for (let count = 0; count < 2; count += 1) await recordAccess(first.audit);
    await first.audit.close();
    const retiring = await openTestAudit(directory, {
      replica,
      segment: { ...segment, keep: 0, size: 2 ** 28 },
    });
    await recordAccess(retiring.audit);
    await until(async () => (await filesOf(replica)).length === 1);
    await retiring.audit.close();
  }
  const scope = { directory, keys, keysDirectory: undefined, parameters: [], query: {} };
  const usage = { kind: 'usage', by: ['client'], lists: {}, maxRows: 10 } as const;
  const { signal } = new AbortController();
  const trailers = async (): Promise<string[]> => {
    const task = { kind: 'export', format: 'jsonl', most: 1_000, timeMs: 60_000 } as const;
    let text = '';
    for await (const piece of runInThread(scope, task, signal)) text += piece;
    return text.split('\n').filter((line) => line.startsWith('{"cut":'));
  };
  expect(await trailers()).toEqual([]);
  expect((await searchInThread(scope, usage, signal)).errors).toEqual([]);

  const [name = ''] = await filesOf('r1@20');
  const file = join(directory, 'r1@20', name);
  await writeFile(file, (await readFile(file, 'utf8')).replaceAll('"reporting"', '"reportinG"'));
  const altered = expect.stringContaining('[records-altered]');
  const counted = await searchInThread(scope, usage, signal);
  expect([counted.notes[0], counted.errors]).toEqual([altered, [altered]]);
  expect(await trailers()).toEqual([altered]);
});

test('a search in copies finds a retirement that only a segment in the middle of them records', async () => {
  const [directory, copies] = [await folder(), await folder()];
  const files = async (): Promise<string[]> =>
    (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
  const run = async (segment: { size: number; keep: number }, isDone: () => Promise<boolean>) => {
    const { audit } = await openTestAudit(directory, { segment: { ...segment, age: DAY_MS } });
    for (let count = 0; count < 3; count += 1) await recordAccess(audit);
    await until(isDone);
    await audit.close();
  };
  const keeping = { size: 1, keep: DAY_MS };
  const write = (): Promise<void> => run(keeping, async () => true);
  const retire = (): Promise<void> =>
    run({ size: 2 ** 28, keep: 0 }, async () => (await files()).length === 1);
  const copy = async (): Promise<void> => {
    const isAll = async (): Promise<boolean> =>
      (await files()).slice(0, -1).every((name) => name.endsWith('.zst'));
    await until(isAll);
    for (const name of (await files()).slice(0, -1)) {
      await cp(join(directory, REPLICA, name), join(copies, REPLICA, name));
    }
  };
  await write();
  await retire();
  await write();
  await copy();
  const [oldest = ''] = await files();
  await retire();
  await write();
  await copy();
  const names = (await readdir(join(copies, REPLICA))).sort();
  const [newest = ''] = names.toReversed();
  // The header of the newest one names a later retirement.
  expect([names[0], await segmentText(copies, newest)]).toEqual([
    oldest,
    expect.stringContaining('"retired"'),
  ]);
  const keys = [auditKeys(new Secret(AUDIT_KEY))] as const;
  const retired = { kind: 'records-retired', facts: { first: Number.parseInt(oldest, 10) } };
  expect(await searched(copies, keys)).toMatchObject({ errors: [], said: [retired] });
  expect((await verified(copies, { isCopy: true })).alterations).toEqual([]);
});

test.each([
  ['header', 'segment-missing', []],
  // A record can be right: the process that retired the segments wrote it to the one that it had begun before.
  ['record', 'segment-unchecked', ['records-retired']],
])('a search believes no %s of a forged oldest segment that it does not read', async (place, kind, said) => {
  const directory = await folder();
  const pathOf = (name: string): string => join(directory, REPLICA, name);
  const { audit } = await openTestAudit(directory, { segment: { size: 1, age: DAY_MS, keep: DAY_MS } });
  for (let count = 0; count < 4; count += 1) await recordAccess(audit);
  await audit.close();
  const names = (await readdir(pathOf(''))).filter((name) => name.includes('.jsonl')).sort();
  const [removed = '', oldest = '', next = ''] = names;
  const headerIn = async (name: string): Promise<SegmentHeader> => {
    const [line = ''] = (await segmentText(directory, name)).split('\n');
    return parseHeader(line) as SegmentHeader;
  };
  const { first, opened, previous } = await headerIn(oldest);
  // So that the next one seems to continue it, and its records seem to be older than the time range.
  const { previous: hmac } = await headerIn(next);
  await rm(pathOf(removed));
  // By somebody who has no key of the log.
  const other = auditKeys(new Secret('f'.repeat(64)));
  const retired = { last: first - 1, hmac: previous };
  const start = headerLine({
    replica: REPLICA,
    first,
    previous,
    key: other.id,
    opened,
    ...(place === 'header' && { retired }),
  });
  const details = { segment: removed, first: 1, previous: GENESIS, ...retired, olderThan: opened };
  const event = JSON.stringify({ kind: 'admin', replica: REPLICA, event: 'segment-retired', ...details });
  const rest = place === 'header' ? '"kind":"other"}' : event.slice(1);
  const lines = start + recordLine(first, '2020-01-01T00:00:00.000Z', rest);
  const seal = sealFor(other, { replica: REPLICA, previous }, { first, last: first }, Buffer.from(lines));
  await rm(pathOf(oldest));
  await writeFile(pathOf(oldest.replace('.zst', '')), lines + sealLine({ ...seal, hmac }));
  const found = await searched(directory, [auditKeys(new Secret(AUDIT_KEY))], {
    since: '2020-01-02T00:00:00.000Z',
  });
  expect([found.errors, found.said]).toMatchObject([[{ kind }], said.map((each) => ({ kind: each }))]);
});

test('what a killed process left of a segment that it removed goes with the next start', async () => {
  const directory = await folder();
  const place = (name: string): string => join(directory, REPLICA, name);
  const names = async (): Promise<string[]> => readdir(place(''));
  const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
  const first = await openTestAudit(directory, { segment });
  for (let count = 0; count < 3; count += 1) await recordAccess(first.audit);
  await first.audit.close();
  const retiring = await openTestAudit(directory, { segment: { ...segment, size: 2 ** 28, keep: 0 } });
  await until(async () => !(await names()).includes('000000000002.jsonl.zst'));
  await retiring.audit.close();
  const setAside = (first: string): string => `${first}.jsonl.803.1700000000000.unsealed`;
  const left = [
    '000000000001.index',
    '000000000002.cosigned',
    '000000000002.stamped',
    setAside('000000000002'),
  ];
  // Of a segment that was never removed, and what is no file of the log.
  const others = [setAside('000000000900'), '1.index', '000000000002.jsonl.note'];
  for (const name of [...left, ...others]) await writeFile(place(name), 'x');
  const { audit } = await openTestAudit(directory, { segment });
  await until(async () => !(await names()).some((name) => left.includes(name)));
  await audit.close();
  expect(await names()).toEqual(expect.arrayContaining(others));
});

test('what cannot be removed beside a removed segment keeps no other one from being compressed', async () => {
  const directory = await folder();
  const place = (name: string): string => join(directory, REPLICA, name);
  const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
  const first = await openTestAudit(directory, { segment });
  for (let count = 0; count < 3; count += 1) await recordAccess(first.audit);
  await first.audit.close();
  const retiring = await openTestAudit(directory, { segment: { ...segment, size: 2 ** 28, keep: 0 } });
  await until(async () => !(await readdir(place(''))).includes('000000000002.jsonl.zst'));
  await retiring.audit.close();
  for (const name of ['000000000001.index', '000000000002.stamped']) {
    await mkdir(place(name));
    await writeFile(join(place(name), 'file'), '');
  }
  await chmod(place('000000000002.stamped'), 0o555);
  // Permissions do not stop root.
  if (process.getuid?.() === 0) execFileSync('chown', ['-R', String(NOBODY), directory]);
  const script = `
    import { openAudit } from '${new URL('../../../src/audit/journal/file-audit.ts', import.meta.url)}';
    import { Secret } from '${new URL('../../../src/base/secret.ts', import.meta.url)}';
    import { pino } from 'pino';
    if (process.getuid() === 0) process.setuid(${NOBODY});
    const { key, ...options } = JSON.parse(process.argv[1]);
    for (let start = 0; start < 3; start += 1) {
      const audit = await openAudit({ ...options, key: new Secret(key) }, { log: pino() });
      await audit.adminWritten('start', {});
      await audit.close('stop');
    }
  `;
  const options = JSON.stringify({ ...auditOptions(directory, { segment }), key: AUDIT_KEY });
  const args = ['--input-type=module', '-e', script, options];
  const logged = execFileSync(process.execPath, args, { encoding: 'utf8' });
  const names = await readdir(place(''));
  await chmod(place('000000000002.stamped'), 0o777);
  expect(names).not.toContain('000000000001.index');
  expect(names).toContain('000000000004.jsonl.zst');
  expect(logged).toContain('"file":"000000000002.stamped"');
});

test('a file behind the newest segment does not let it be compressed while it is written', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory, { segment: { size: 1, age: DAY_MS, keep: DAY_MS } });
  await writeFile(join(directory, REPLICA, '000000000100.jsonl'), '');
  await recordAccess(audit);
  await audit.close();
  const names = await readdir(join(directory, REPLICA));
  expect(names).toEqual(expect.arrayContaining(['000000000001.jsonl.zst', '000000000002.jsonl']));
});

test('a segment that cannot be compressed leaves nothing behind, and does not keep old ones from being removed', async () => {
  const directory = await folder();
  const place = (name: string): string => join(directory, REPLICA, name);
  const names = async (): Promise<string[]> => readdir(place(''));
  const segment = { size: 2 ** 28, age: DAY_MS, keep: DAY_MS };
  const first = await openTestAudit(directory, { segment: { ...segment, size: 1 } });
  // A compressed file takes the place of no folder.
  for (const name of ['000000000001.jsonl.zst', '000000000002.jsonl.zst.tmp']) {
    await mkdir(join(place(name), 'folder'), { recursive: true });
  }
  for (let count = 0; count < 3; count += 1) await recordAccess(first.audit);
  await first.audit.close();
  const left = await names();
  expect(left).toEqual(expect.arrayContaining(['000000000001.jsonl', '000000000002.jsonl.zst']));
  expect(left.filter((name) => name.endsWith('.tmp'))).toEqual([]);
  const msg = 'a closed audit segment cannot be compressed now';
  expect(first.logged).toContainEqual(expect.objectContaining({ msg, segment: '000000000001.jsonl' }));

  const next = await openTestAudit(directory, { segment: { ...segment, keep: 0 } });
  await until(async () => !(await names()).includes('000000000002.jsonl.zst'));
  await next.audit.close();
});
