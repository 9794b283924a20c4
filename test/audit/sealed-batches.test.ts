import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { type SealedBatch, SealedBatches } from '../../src/audit/reader/sealed-batches.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const FIRST = '000000000001.jsonl';

/** A log of records, each under a seal of its own, and a reader of what the writer has confirmed. */
async function scene() {
  const directory = await folder();
  const confirmed = { last: 0 };
  const forged: unknown[] = [];
  const record = async (...requestIds: string[]): Promise<void> => {
    const { audit } = await openTestAudit(directory);
    for (const requestId of requestIds) await recordAccess(audit, { requestId });
    await audit.close();
  };
  const batches = new SealedBatches(
    {
      folder: join(directory, REPLICA),
      replica: REPLICA,
      keys: [auditKeys(new Secret(AUDIT_KEY))],
      onForged: (range) => forged.push(range),
      confirmed: () => confirmed.last,
    },
    1,
  );
  /** The requests of the batches up to the record `last`. */
  const read = async (last: number): Promise<(string | undefined)[]> => {
    confirmed.last = last;
    const found: SealedBatch[] = [];
    for (let batch = await batches.next(); batch !== undefined; batch = await batches.next())
      found.push(batch);
    return found.flatMap(({ records }) => records.map(({ line }) => JSON.parse(line).requestId));
  };
  return { file: join(directory, REPLICA, FIRST), batches, record, read, forged };
}

test('gives the batches that the writer has confirmed, and no others', async () => {
  const { batches, record, read, forged } = await scene();
  await record('a', 'b', 'c');
  expect(await read(0)).toEqual([]);
  expect(await read(2)).toEqual(['a', 'b']);
  expect(await read(2)).toEqual([]);
  await record('d');
  expect(await read(4)).toEqual(['c', 'd']);
  expect(forged).toEqual([]);
  await batches.close();
});

test('does not give a batch that the writer took back', async () => {
  const { file, batches, record, read, forged } = await scene();
  await record('a', 'b', 'taken-back');
  expect(await read(2)).toEqual(['a', 'b']);
  const text = await readFile(file, 'utf8');
  await writeFile(file, text.slice(0, text.indexOf('{"seq":3,')));
  await record('c', 'd');
  expect(await read(3)).toEqual(['c']);
  expect(await read(4)).toEqual(['d']);
  expect(forged).toEqual([]);
  await batches.close();
});
