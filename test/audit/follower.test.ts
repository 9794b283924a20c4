import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { PositionFile } from '../../src/audit/segments/signed-file.ts';
import { Follower, type Unit } from '../../src/audit/shipping/follower.ts';
import { RetryLater } from '../../src/audit/shipping/receiver.ts';
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
  await follower.finish(AbortSignal.abort());
});

/** A follower of four units with ten records each, and the lines of its log. */
async function followUnits(deliver: (content: number) => Promise<number>) {
  const units = [1, 2, 3, 4].map((seq) => {
    const position = { seq, hmac: 'a'.repeat(43) };
    return { content: seq, records: 10, since: 0, position };
  });
  const logged: object[] = [];
  const note = (fields: object, msg: string): void => void logged.push({ ...fields, msg });
  const follower = new Follower<number>(
    { sink: 's', replica: REPLICA, timeout: 1_000, pollMs: 1 },
    {
      source: { next: async () => units.shift(), behind: async () => 0, close: async () => undefined },
      delivery: { deliver, close: async () => undefined },
      file: new PositionFile(await folder(), 's', REPLICA, auditKeys(new Secret(AUDIT_KEY))),
      position: undefined,
      log: { info: note, warn: note, error: note },
    },
  );
  return { follower, logged };
}

const [sink, log] = ['s', REPLICA];
const fails = 'audit sink fails; records are kept, and sent later';
const refused = 'audit records were refused for good or are gone; they are not sent to the sink again';
const again = 'audit sink gets records again';

test('a receiver that refuses and fails now and then gets few log lines, which miss no record', async () => {
  let calls = 0;
  const { follower, logged } = await followUnits(async (content) => {
    calls += 1;
    if (calls % 2 === 1) throw new Error('status 500');
    return content;
  });
  await follower.finish(AbortSignal.timeout(10_000));
  expect(logged).toEqual([
    { sink, log, reason: 'status 500', msg: fails },
    { sink, log, records: 1, of: 10, last: 1, msg: refused },
    { sink, log, seq: 1, msg: again },
    { sink, log, reason: 'status 500', msg: fails },
    { sink, log, seq: 4, msg: again },
    { sink, log, records: 9, of: 30, last: 4, msg: refused },
  ]);
  expect(await follower.status()).toMatchObject({
    failures: 4,
    delivered: 30,
    skipped: 10,
    failing: undefined,
  });
});

test('a receiver that fails again is logged at once, after the records that it refused before', async () => {
  const replies = [new Error('status 500'), 0, 1, 9];
  const { follower, logged } = await followUnits(async () => {
    const reply = replies.shift() ?? new RetryLater('status 429', 300_000);
    if (typeof reply === 'object') throw reply;
    return reply;
  });
  await until(async () => (await follower.status()).failing === 'status 429');
  expect(logged).toEqual([
    { sink, log, reason: 'status 500', msg: fails },
    { sink, log, seq: 1, msg: again },
    { sink, log, records: 1, of: 10, last: 2, msg: refused },
    { sink, log, records: 9, of: 10, last: 3, msg: refused },
    { sink, log, reason: 'status 429', msg: fails },
  ]);
  await follower.finish(AbortSignal.abort());
});
