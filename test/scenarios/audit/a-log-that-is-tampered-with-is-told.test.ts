import { appendFile, readdir, rename, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../../src/audit/keys.ts';
import { verify } from '../../../src/audit/reader/verify.ts';
import { Secret } from '../../../src/base/secret.ts';
import { AUDIT_KEY, auditOptions, REPLICA, recordsIn, useFolders } from '../../support/audit-log.ts';
import { authors, type Pair, startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();
const SEGMENT = join(REPLICA, '000000000001.jsonl');

async function resumed(pair: Pair): Promise<boolean> {
  return pair.gateway.logged.some(({ msg }) => msg === 'audit log writable again');
}

test.each([
  ['its directory is removed', (place: string) => rm(place, { recursive: true }), /is gone/],
  ['its file is removed', (place: string) => rm(join(place, SEGMENT)), /is gone/],
  ['its file is moved', (place: string) => rename(join(place, SEGMENT), join(place, 'away')), /is gone/],
  ['its file is truncated', (place: string) => truncate(join(place, SEGMENT), 10), /became shorter/],
  ['something is appended', (place: string) => appendFile(join(place, SEGMENT), 'x\n'), /holds more/],
])('while it runs: %s', async (_title, tamper, reason) => {
  const directory = await folder();
  const pair = await startPair({}, { audit: auditOptions(directory) });
  expect((await pair.get(authors)).status).toBe(200);
  await tamper(directory);
  await until(() => resumed(pair));
  expect(pair.gateway.logged.find(({ level }) => level === 50)).toMatchObject({
    reason: expect.stringMatching(reason),
    msg: 'requests are refused until the audit log can be written',
  });
  expect((await pair.get(authors)).status).toBe(200);
  expect(await pair.gateway.metric('digest_gateway_audit_failures_total', { sink: 'file' })).toBeGreaterThan(
    0,
  );
  await pair.gateway.app.close();

  const last = (await readdir(join(directory, REPLICA)))
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .at(-1);
  expect(last).not.toBe('000000000001.jsonl');
  expect((await recordsIn(directory)).find(({ event }) => event === 'audit-resumed')).toMatchObject({
    reason: expect.stringMatching(reason),
  });
  const keys = [auditKeys(new Secret(AUDIT_KEY))];
  const { alterations } = await verify({ directory, keys, heads: [], onBytes: () => undefined });
  expect(alterations).not.toEqual([]);
});
