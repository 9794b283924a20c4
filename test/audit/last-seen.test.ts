import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { Audit } from '../../src/audit/audit.ts';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { findLastSeen, type LastSeenOptions } from '../../src/audit/reader/last-seen.ts';
import type { AccessFacts } from '../../src/audit/record.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, recordsIn, useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const DAY_MS = 86_400_000;
const NOTE = 'key of "Berlin" \\ Ä';
const nothing = (): void => undefined;

function lastSeen(directory: string, change: Partial<LastSeenOptions> = {}) {
  return findLastSeen({
    directory,
    keys: [auditKeys(new Secret(AUDIT_KEY))],
    clients: new Map([['reporting', [NOTE, 'abababab']]]),
    since: '2020-01-01T00:00:00.000Z',
    onBytes: nothing,
    onNote: nothing,
    onUnreadable: (finding) => {
      throw new Error(finding.kind);
    },
    ...change,
  });
}

/** Records a request in a millisecond of its own. */
async function request(audit: Audit, change: Partial<AccessFacts> = {}): Promise<void> {
  const before = Date.now();
  while (Date.now() === before);
  await recordAccess(audit, change);
}

async function timesIn(directory: string, replica: string): Promise<string[]> {
  return (await recordsIn(directory, replica))
    .filter(({ kind }) => kind === 'access')
    .map(({ time }) => String(time));
}

describe('when clients were last seen', () => {
  test('is the newest record of each client and key in the logs of all replicas', async () => {
    const directory = await folder();
    const [one, two] = await Promise.all(
      ['r1', 'r2'].map((replica) => openTestAudit(directory, { replica })),
    );
    if (one === undefined || two === undefined) throw new Error('no log');
    await request(one.audit, { key: NOTE });
    await request(two.audit, { key: NOTE });
    await request(one.audit, { client: 'other', key: 'abababab' });
    await request(one.audit, { key: `${NOTE} too` });
    await Promise.all([one.audit.close(), two.audit.close()]);
    const [, other, latest] = await timesIn(directory, 'r1');
    const [ofKey] = await timesIn(directory, 'r2');
    const clients = new Map([
      ['reporting', [NOTE, 'abababab']],
      ['other', []],
      ['nobody', []],
    ]);
    expect(await lastSeen(directory, { clients })).toEqual({
      clients: new Map([
        [
          'reporting',
          {
            time: latest,
            keys: new Map([
              [NOTE, ofKey],
              ['abababab', undefined],
            ]),
          },
        ],
        ['other', { time: other, keys: new Map() }],
        ['nobody', { time: undefined, keys: new Map() }],
      ]),
      isWholeLog: true,
    });
  });

  test('takes no parameter of a request for its key', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { parameters: ['key'] });
    await request(audit, { target: '/x?a=1&status=2&key=abababab' });
    await request(audit, { target: `/x?a=1&key=abababab&${'long'.repeat(50)}=1`, key: NOTE });
    await audit.close();
    const [, latest] = await timesIn(directory, 'r1');
    const { clients } = await lastSeen(directory);
    expect(clients.get('reporting')).toEqual({
      time: latest,
      keys: new Map([
        [NOTE, latest],
        ['abababab', undefined],
      ]),
    });
  });

  test('reads no segment that can change nothing, and none that is before the time', async () => {
    const directory = await folder();
    const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
    const { audit } = await openTestAudit(directory, { segment });
    await request(audit, { key: NOTE });
    for (let count = 0; count < 5; count += 1) await request(audit, { key: 'abababab' });
    await audit.close();
    const skippedOf = async (change: Partial<LastSeenOptions>) => {
      const skipped: string[] = [];
      const result = await lastSeen(directory, { onSkipped: (file) => skipped.push(file), ...change });
      return { ...result, skipped: skipped.length };
    };
    const segments = (await readdir(join(directory, 'r1'))).filter((name) => /\.jsonl(\.zst)?$/.test(name));
    expect(segments.length).toBeGreaterThan(4);
    const whole = await skippedOf({});
    expect(whole).toMatchObject({ isWholeLog: true, skipped: 0 });
    const newest = await skippedOf({ clients: new Map([['reporting', []]]) });
    expect(newest.clients.get('reporting')?.time).toBe(whole.clients.get('reporting')?.time);
    expect(newest.skipped).toBeGreaterThanOrEqual(segments.length - 3);
    const since = whole.clients.get('reporting')?.time ?? '';
    const short = await skippedOf({ since });
    expect(short.isWholeLog).toBe(false);
    expect(short.clients.get('reporting')?.keys).toEqual(
      new Map([
        [NOTE, undefined],
        ['abababab', since],
      ]),
    );
    expect(short.skipped).toBeGreaterThanOrEqual(segments.length - 3);
  });

  test('does not count a record that no seal covers as it is', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await request(audit);
    await audit.close();
    const [name = ''] = (await readdir(join(directory, 'r1'))).filter((each) => each.endsWith('.jsonl'));
    const file = join(directory, 'r1', name);
    await writeFile(
      file,
      (await readFile(file, 'utf8')).replace('"client":"reporting"', '"client":"altered"'),
    );
    const errors: PlacedFinding[] = [];
    const clients = new Map([['altered', []]]);
    const found = await lastSeen(directory, { clients, onUnreadable: (finding) => errors.push(finding) });
    expect(found.clients.get('altered')?.time).toBeUndefined();
    expect(errors).toMatchObject([{ kind: 'records-altered', facts: { records: 1 } }]);
  });
});
