import { appendFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { allKeys } from '../../src/audit/segments/pseudonym-files.ts';
import { Retention } from '../../src/audit/segments/retention.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  facts,
  openTestAudit,
  REPLICA,
  recordAccess,
  recordsIn,
  useFolders,
} from '../support/audit-log.ts';
import { newSigningKey } from '../support/signing-key.ts';

const folder = useFolders();
const SEGMENT = '000000000001.jsonl';
afterEach(() => {
  jest.restoreAllMocks();
});

async function withOneRecord(event?: 'stop'): Promise<{ directory: string; file: string }> {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  await recordAccess(audit);
  await audit.close(event);
  return { directory, file: join(directory, REPLICA, SEGMENT) };
}

test('a log in use is enabled, whole, and not failing', async () => {
  const { audit, logged } = await openTestAudit(await folder());
  expect(audit).toMatchObject({
    enabled: true,
    failing: undefined,
    refusing: false,
    integrityError: undefined,
  });
  expect(await recordAccess(audit)).toBe(true);
  expect(audit.counts).toEqual({ records: 1, failures: 0 });
  await audit.close();
  expect(logged.map(({ level, msg }) => [level, msg])).toEqual([[30, 'audit head']]);
});

test('the last record does not wait for a segment that takes for ever to be compressed or removed', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  jest.spyOn(Retention.prototype, 'idle', 'get').mockReturnValue(new Promise(() => {}));
  await audit.close('stop');
  expect(await recordsIn(directory)).toMatchObject([{ event: 'stop' }]);
  jest.restoreAllMocks();
  // The folder is free.
  await (await openTestAudit(directory)).audit.close();
});

test('each record has its number', async () => {
  const { audit } = await openTestAudit(await folder());
  const waiter = { recorded: () => undefined, unrecorded: () => undefined };
  const numbers = [
    audit.access(facts(), waiter),
    audit.refusal(facts(), waiter),
    audit.access(facts(), waiter),
  ];
  expect(numbers).toEqual([1, 2, 3]);
  await audit.close();
});

describe('an event of the gateway', () => {
  test('is in the file when it is said to be', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    expect(await audit.adminWritten('reload', { result: 'success' })).toBe(true);
    expect(await recordsIn(directory)).toMatchObject([{ event: 'reload', result: 'success' }]);
    await audit.close();
  });

  test('is written without anything that waits for it', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    audit.admin('start', {});
    await audit.close('stop');
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['start', 'stop']);
  });

  test('is not written after the end', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await audit.close();
    expect(await audit.adminWritten('reload', {})).toBe(false);
    expect([await recordAccess(audit), audit.counts]).toEqual([false, { records: 0, failures: 2 }]);
    audit.admin('reload', {});
    expect(audit.counts).toEqual({ records: 0, failures: 3 });
    expect(await recordsIn(directory)).toEqual([]);
  });

  test('has the address of who acted, which is hidden under the key of the month if no client is named', async () => {
    const [directory, keysDirectory] = [await folder(), await folder()];
    const { audit: plain } = await openTestAudit(directory);
    await plain.adminWritten('sign-in', { address: '192.0.2.7' });
    await plain.close();
    const pseudonyms = { keysDirectory, fields: ['address'], per: 'client' } as const;
    const { audit } = await openTestAudit(directory, { pseudonyms });
    await audit.adminWritten('sign-in', { address: '192.0.2.7' });
    await audit.close();
    const hidden = expect.stringMatching(/^ps1:/);
    expect((await recordsIn(directory)).map(({ address }) => address)).toEqual(['192.0.2.7', hidden]);
    const keys = await allKeys(keysDirectory, (issue) => expect(issue).toBe(''));
    expect(keys.map(({ key }) => key.scope)).toEqual(['month']);
  });
});

test('a loss is recorded with the place of the head, and with the end of the log if it is its own', async () => {
  const { directory } = await withOneRecord('stop');
  const { audit } = await openTestAudit(directory);
  const hmac = 'h'.repeat(43);
  expect(await audit.recordLoss({ replica: REPLICA, seq: 9, hmac })).toBe(true);
  expect(await audit.recordLoss({ replica: 'r2', seq: 8, hmac })).toBe(true);
  await audit.close();
  const lost = { event: 'records-lost', hmac };
  const [own, other] = (await recordsIn(directory)).slice(-2);
  expect(own).toMatchObject({ ...lost, log: REPLICA, last: 9, end: 2 });
  expect(other).toMatchObject({ ...lost, log: 'r2', last: 8 });
  expect(other).not.toHaveProperty('end');
});

test('what records hold can be changed', async () => {
  const directory = await folder();
  const pseudonyms = { keysDirectory: await folder(), fields: [], per: 'month' } as const;
  const { audit } = await openTestAudit(directory, { pseudonyms });
  await recordAccess(audit);
  audit.configure(undefined);
  await recordAccess(audit);
  audit.configure({ parameters: [], pseudonyms: { fields: ['address'] } });
  await recordAccess(audit);
  audit.configure({ parameters: ['token'], pseudonyms: { fields: [] } });
  await recordAccess(audit);
  await audit.close();
  const plain = { address: '192.0.2.7', parameters: { ids: "'A'", token: null } };
  expect(await recordsIn(directory)).toMatchObject([
    plain,
    plain,
    { address: expect.stringMatching(/^ps1:/), parameters: { ids: null, token: null } },
    { address: '192.0.2.7', parameters: { ids: null, token: 'hunter2' } },
  ]);
});

test('the last records are at hand', async () => {
  const { audit } = await openTestAudit(await folder());
  await recordAccess(audit, { requestId: 'q7' });
  const { records, position } = audit.recent.since(0);
  expect([records.length, position, records[0]?.record]).toEqual([1, 1, expect.stringContaining('"q7"')]);
  await audit.close();
});

describe('at the start', () => {
  test('a changed segment is told, with its line', async () => {
    const { directory, file } = await withOneRecord();
    await writeFile(file, (await readFile(file, 'utf8')).replace('192.0.2.7', '192.0.2.8'));
    const { audit, logged } = await openTestAudit(directory);
    const error = logged.find(({ level }) => level === 50);
    expect(error).toMatchObject({
      segment: SEGMENT,
      error: 'batch-altered',
      msg: 'the audit log was changed: run audit verify',
    });
    expect(audit.integrityError).toMatchObject({
      replica: REPLICA,
      segment: SEGMENT,
      line: error?.['line'],
      kind: 'batch-altered',
    });
    await audit.close();
    const found = {
      event: 'segment-damaged',
      segment: SEGMENT,
      line: error?.['line'],
      error: error?.['error'],
      message: error?.['message'],
    };
    expect((await recordsIn(directory)).at(-1)).toMatchObject(found);
  });

  test('lines that were appended after the process had stopped are told', async () => {
    const { directory, file } = await withOneRecord('stop');
    const lines = (await readFile(file, 'utf8')).split('\n').length;
    await appendFile(file, '{"seq":3,"time":"2026-01-01T00:00:00.000Z","kind":"admin"}\n');
    const { audit, logged } = await openTestAudit(directory);
    await audit.close();
    const told = logged.filter(({ level }) => Number(level) > 30);
    const msg = 'audit log was appended to after its process had stopped';
    expect(told).toMatchObject([{ level: 50, segment: SEGMENT, line: lines, afterStop: true, msg }]);
    expect(audit.integrityError).toMatchObject({
      segment: SEGMENT,
      line: lines,
      kind: 'appended-after-stop',
      facts: { records: 1 },
    });
    expect((await recordsIn(directory)).at(-1)).toMatchObject({ event: 'recovered', segment: SEGMENT });
  });

  test('lines of a process that was killed are told, which is no error', async () => {
    const { directory, file } = await withOneRecord();
    await appendFile(file, '{"seq":2,"ti');
    const { audit, logged } = await openTestAudit(directory);
    await audit.close();
    const msg = 'the end of the audit log had no seal and was set aside';
    const told = logged.filter(({ level }) => Number(level) > 30);
    expect(told).toMatchObject([{ level: 40, segment: SEGMENT, msg }]);
    expect(audit.integrityError).toBeUndefined();
  });

  test.each([
    ['another signing key: a new tree of signed heads begins, as none could check the one before', false, 40],
    ['the same signing key: the tree goes on', true, 30],
  ])('a part under another key is told, with %s', async (_case, isSameSigner, level) => {
    const directory = await folder();
    const [first, other] = [newSigningKey().secret, newSigningKey().secret];
    const { audit } = await openTestAudit(directory, { key: new Secret('e'.repeat(64)), signingKey: first });
    await audit.close('stop');
    const signingKey = isSameSigner ? first : other;
    const next = await openTestAudit(directory, { key: new Secret('f'.repeat(64)), signingKey });
    await next.audit.close();
    const told = next.logged.filter(({ msg }) => /sealed with another key/.test(String(msg)));
    const msg = 'audit log was sealed with another key; that part was not checked';
    expect(told).toMatchObject([
      isSameSigner
        ? { level, msg }
        : { level, first: 2, msg: `${msg}, and a new tree of signed heads begins` },
    ]);
  });

  test('a part under another key is told', async () => {
    const { directory } = await withOneRecord();
    const { audit, logged } = await openTestAudit(directory, { key: new Secret('f'.repeat(64)) });
    await audit.close();
    expect(logged).toContainEqual(
      expect.objectContaining({
        msg: 'audit log was sealed with another key; that part was not checked',
        before: auditKeys(new Secret(AUDIT_KEY)).id,
      }),
    );
  });
});
