import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { verify } from '../../src/audit/reader/verify.ts';
import { RecordText, recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { headerLine, segmentName } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const keys = auditKeys(new Secret(AUDIT_KEY));
const text = new RecordText(REPLICA);
const TIME = '2026-01-01T00:00:00.000Z';

/** Writes segments as version 1 did: the first seal covers the header and the first records. */
class EarlierWriter {
  readonly #directory: string;
  #previous = GENESIS;
  #seq = 1;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The content of a record that retires all records so far. */
  get end() {
    return { last: this.#seq - 1, hmac: this.#previous };
  }

  async segment(name: 'kept' | 'removed', ...batches: string[][]): Promise<void> {
    const first = this.#seq;
    let content = '';
    let lines = headerLine({ replica: REPLICA, first, previous: this.#previous, key: keys.id, opened: TIME });
    for (const batch of batches) {
      const from = this.#seq;
      for (const record of batch) {
        lines += recordLine(this.#seq, TIME, record);
        this.#seq += 1;
      }
      const chain = { replica: REPLICA, previous: this.#previous };
      const seal = sealFor(keys, chain, { first: from, last: this.#seq - 1 }, Buffer.from(lines));
      content += `${lines}${sealLine(seal)}`;
      lines = '';
      this.#previous = seal.hmac;
    }
    await mkdir(join(this.#directory, REPLICA), { recursive: true });
    if (name === 'kept') await writeFile(join(this.#directory, REPLICA, segmentName(first)), content);
  }
}

test('verifies a log of version 1 with a retired segment, before and after this version continues it', async () => {
  const directory = await folder();
  const check = () => verify({ directory, keys: [keys], heads: [], onBytes: () => undefined });
  const earlier = new EarlierWriter(directory);
  await earlier.segment('removed', [text.admin('start', {})], [text.admin('x', {})]);
  const retired = text.admin('segment-retired', { segment: segmentName(1), ...earlier.end });
  await earlier.segment('kept', [text.admin('start', {}), retired], [text.admin('stop', {})]);
  await earlier.segment('kept', [text.admin('start', {})], [text.admin('stop', {})]);
  expect(await check()).toMatchObject({ alterations: [], notes: [], records: 5 });

  const segment = { size: 2 ** 28, age: 1, keep: 1 };
  for (let start = 0; start < 2; start += 1) {
    const { audit } = await openTestAudit(directory, { segment });
    await recordAccess(audit);
    await audit.close('stop');
    expect((await check()).alterations).toEqual([]);
  }
  expect(await readdir(join(directory, REPLICA))).not.toContain(segmentName(3));
});
