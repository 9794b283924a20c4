import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { PositionFile } from '../../src/audit/segments/signed-file.ts';
import { Follower, type Unit } from '../../src/audit/shipping/follower.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, REPLICA, useFolders } from '../support/audit-log.ts';
import { until } from '../support/until.ts';

const folder = useFolders();

test('at its end, reads once more what came while it was reading', async () => {
  const read = Promise.withResolvers<undefined>();
  const unit: Unit<string> = {
    content: 'the last record',
    records: 1,
    since: 0,
    position: { seq: 1, hmac: 'a'.repeat(43) },
  };
  const delivered: string[] = [];
  const pending: (Promise<undefined> | Unit<string>)[] = [read.promise, unit];
  const follower = new Follower<string>(
    { sink: 's', replica: REPLICA, timeout: 1_000, pollMs: 1 },
    {
      source: {
        next: async () => pending.shift(),
        behind: async () => 0,
        close: async () => undefined,
      },
      delivery: {
        async deliver(content) {
          delivered.push(content);
          return 0;
        },
        close: async () => undefined,
      },
      file: new PositionFile(await folder(), 's', REPLICA, auditKeys(new Secret(AUDIT_KEY))),
      position: undefined,
      log: { info() {}, warn() {}, error() {} },
    },
  );
  const finished = follower.finish(AbortSignal.timeout(10_000));
  read.resolve(undefined);
  await finished;
  expect(delivered).toEqual(['the last record']);
});

test('names the file of the position if that cannot be stored, and sends nothing twice for it', async () => {
  const directory = await folder();
  await mkdir(join(directory, 's.sink'));
  const delivered: string[] = [];
  const reasons: unknown[] = [];
  const position = { seq: 1, hmac: 'a'.repeat(43) };
  const pending: Unit<string>[] = [{ content: 'a record', records: 1, since: 0, position }];
  const follower = new Follower<string>(
    { sink: 's', replica: REPLICA, timeout: 1_000, pollMs: 1 },
    {
      source: {
        next: async () => pending.shift(),
        behind: async () => 0,
        close: async () => undefined,
      },
      delivery: {
        async deliver(content) {
          delivered.push(content);
          return 0;
        },
        close: async () => undefined,
      },
      file: new PositionFile(directory, 's', REPLICA, auditKeys(new Secret(AUDIT_KEY))),
      position: undefined,
      log: { info() {}, warn: (fields) => reasons.push(Object(fields).reason), error() {} },
    },
  );
  await until(async () => (await follower.status()).failures > 1);
  expect(delivered).toEqual(['a record']);
  expect(reasons).toEqual([expect.stringMatching(`^${join(directory, 's.sink')} cannot be written: EISDIR`)]);
  await follower.finish(AbortSignal.timeout(10_000));
});
