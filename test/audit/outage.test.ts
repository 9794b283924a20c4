import { renameSync } from 'node:fs';
import { appendFile, readdir, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { facts, openTestAudit, REPLICA, recordAccess, recordsIn, useFolders } from '../support/audit-log.ts';
import { until } from '../support/until.ts';

const folder = useFolders();
const FIRST = join(REPLICA, '000000000001.jsonl');
const SECOND = join(REPLICA, '000000000002.jsonl');

/**
 * A file takes the place of the folder, so that nothing can be written until the function that it resolves to is
 * called.
 */
async function withoutFolder(directory: string): Promise<() => Promise<void>> {
  const place = join(directory, REPLICA);
  const aside = await folder();
  await writeFile(join(aside, 'file'), '');
  // At once: the log would make its folder again in between.
  renameSync(place, join(aside, REPLICA));
  renameSync(join(aside, 'file'), place);
  return () => rm(place);
}

describe('while nothing can be written', () => {
  test('no record is confirmed; each is kept, and written when it is possible again', async () => {
    const directory = await folder();
    const { audit, logged } = await openTestAudit(directory);
    expect(await recordAccess(audit)).toBe(true);
    const begun = performance.now();
    const end = await withoutFolder(directory);
    await until(() => audit.failing !== undefined);
    expect([audit.failing, audit.refusing]).toEqual([expect.stringContaining(FIRST), true]);
    const failed = {
      code: 'segment-gone',
      reason: audit.failing,
      msg: 'requests are refused until the audit log can be written',
    };
    expect(logged.filter(({ level }) => level === 50)[0]).toMatchObject(failed);
    audit.missed();
    expect(await recordAccess(audit, { requestId: 'during' })).toBe(false);
    const { records, failures } = audit.counts;
    expect(records).toBe(2);
    // On a slow machine a further attempt has failed meanwhile.
    expect(failures).toBeGreaterThanOrEqual(2);
    await end();
    await until(() => audit.failing === undefined);
    expect([audit.refusing, await recordAccess(audit, { requestId: 'after' })]).toEqual([false, true]);
    await audit.close();
    const resumed = { refused: 1, unrecorded: 1, lost: 0, milliseconds: expect.any(Number) };
    const { milliseconds } = logged.find(({ msg }) => msg === 'audit log writable again') ?? {};
    expect(Number(milliseconds)).toBeLessThanOrEqual(performance.now() - begun + 1);
    expect(logged).toContainEqual(expect.objectContaining({ ...resumed, msg: 'audit log writable again' }));
    expect(await recordsIn(directory)).toMatchObject([
      { seq: 2, requestId: 'during' },
      { seq: 3, event: 'audit-resumed', code: 'segment-gone', ...resumed },
      { seq: 4, requestId: 'after' },
    ]);
  });

  test('with onFailure serve, requests go on without a record', async () => {
    const directory = await folder();
    const { audit, logged } = await openTestAudit(directory, { onFailure: 'serve' });
    const end = await withoutFolder(directory);
    await until(() => audit.failing !== undefined);
    expect([audit.refusing, await recordAccess(audit)]).toEqual([false, true]);
    const text = 'requests are served without a record until the audit log can be written';
    expect(logged.map(({ msg }) => msg)).toContain(text);
    await end();
    await until(() => audit.failing === undefined);
    const again = await withoutFolder(directory);
    await until(() => audit.failing !== undefined);
    await again();
    await until(() => audit.failing === undefined);
    await audit.close();
    // Each outage counts for itself.
    expect(logged.filter(({ msg }) => msg === 'audit log writable again')).toMatchObject([
      { refused: 0, unrecorded: 1, lost: 0 },
      { refused: 0, unrecorded: 0, lost: 0 },
    ]);
  });

  test('with durability async, no request waits', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { durability: 'async' });
    const end = await withoutFolder(directory);
    await until(() => audit.failing !== undefined);
    expect(await recordAccess(audit, { requestId: 'during' })).toBe(true);
    await end();
    await until(() => audit.failing === undefined);
    await audit.close();
    expect((await recordsIn(directory)).map(({ requestId }) => requestId)).toContain('during');
  });

  test('memory for records is bounded, and those beyond are counted', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    const end = await withoutFolder(directory);
    await until(() => audit.failing !== undefined);
    const target = `/${'x'.repeat(2_000)}`;
    const waiter = { recorded: () => undefined, unrecorded: () => undefined };
    let kept = 0;
    while (audit.access(facts({ target }), waiter) !== 0) kept += 1;
    expect(kept * 2_000).toBeGreaterThan(12 * 2 ** 20);
    expect(kept * 2_000).toBeLessThan(17 * 2 ** 20);
    expect(await recordAccess(audit)).toBe(false);
    await end();
    await until(() => audit.failing === undefined);
    await audit.close();
    const resumed = (await recordsIn(directory)).find(({ event }) => event === 'audit-resumed');
    expect(resumed).toMatchObject({ lost: 2, unrecorded: kept });
  });

  test('the end of the gateway is not held up', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await withoutFolder(directory);
    await until(() => audit.failing !== undefined);
    expect(await recordAccess(audit)).toBe(false);
    await audit.close('stop');
    expect([await recordAccess(audit), audit.counts.records]).toEqual([false, 2]);
  });
});

describe('a segment that somebody else', () => {
  test.each<[string, (file: string) => Promise<unknown>, string]>([
    ['removed', (file) => rm(file), 'segment-gone'],
    ['replaced', (file) => rename(file, `${file}.old`).then(() => writeFile(file, '')), 'segment-replaced'],
    ['shortened', (file) => truncate(file, 3), 'segment-truncated'],
    ['appended to', (file) => appendFile(file, 'x'), 'segment-appended'],
  ])('%s is left as it is, and the next one goes on', async (_, change, code) => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await recordAccess(audit);
    await change(join(directory, FIRST));
    await until(async () => (await readdir(join(directory, REPLICA))).includes('000000000002.jsonl'));
    await until(() => audit.failing === undefined);
    await audit.close();
    const records = await recordsIn(directory);
    expect(records.find(({ seq }) => seq === 2)).toMatchObject({
      event: 'audit-resumed',
      code,
      reason: expect.stringContaining(FIRST),
    });
    expect((await readdir(directory, { recursive: true })).includes(SECOND)).toBe(true);
  });
});

describe('a segment', () => {
  test('is closed when it is old, also if no record comes', async () => {
    const directory = await folder();
    const segment = { size: 1e9, age: 50, keep: 86_400_000 };
    const { audit } = await openTestAudit(directory, { segment });
    await recordAccess(audit);
    await until(async () => (await readdir(join(directory, REPLICA))).includes('000000000002.jsonl'));
    await audit.close();
  });

  test('that is full is closed after the record that filled it', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { segment: { size: 2_000, age: 1e9, keep: 1e9 } });
    for (let count = 0; count < 8; count += 1) await recordAccess(audit);
    await audit.close();
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
    expect(names.length).toBeGreaterThan(1);
    expect(names.length).toBeLessThan(6);
  });
});

test('a record that nobody waits for is written within a moment', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const bytes = { in: 0, out: 0 };
  audit.outcome({ access: 1, requestId: 'q', status: 200, code: '', outcome: '', bytes, durationMs: 1 });
  await until(async () => (await recordsIn(directory)).length === 1);
  await audit.close();
});

test('records that nobody waits for are written when there are many', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const bytes = { in: 0, out: 0 };
  for (let count = 0; count < 1_000; count += 1) {
    audit.outcome({ access: 1, requestId: 'q', status: 200, code: '', outcome: '', bytes, durationMs: 1 });
  }
  await until(() => audit.head !== undefined);
  await audit.close();
  expect(audit.head?.seq).toBe(1_000);
});
