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

const [sink, log] = ['s', REPLICA];

/** A follower of units whose contents are delivered by `deliver`, and the lines of its log. */
function follow<Content>(
  directory: string,
  next: () => Promise<Unit<Content> | undefined>,
  deliver: (content: Content) => Promise<number>,
) {
  const logged: object[] = [];
  const note = (fields: object, msg: string): void => void logged.push({ ...fields, msg });
  const follower = new Follower<Content>(
    { sink, replica: REPLICA, timeout: 1_000, pollMs: 1 },
    {
      source: { next, behind: async () => 0, close: async () => undefined },
      delivery: { deliver, close: async () => undefined },
      file: new PositionFile(directory, sink, REPLICA, auditKeys(new Secret(AUDIT_KEY))),
      position: undefined,
      log: { info: note, warn: note, error: note },
    },
  );
  return { follower, logged };
}

/** A follower of four units with ten records each, and the lines of its log. */
async function followUnits(deliver: (content: number) => Promise<number>) {
  const units = [1, 2, 3, 4].map((seq) => unitOf(seq, seq, 10));
  return follow(await folder(), async () => units.shift(), deliver);
}

function unitOf<Content>(content: Content, seq: number, records: number): Unit<Content> {
  return { content, records, since: 0, position: { seq, hmac: 'a'.repeat(43) } };
}

test('at its end, reads once more what came while it was reading', async () => {
  const read = Promise.withResolvers<undefined>();
  const delivered: string[] = [];
  const pending = [read.promise, unitOf('the last record', 1, 1)];
  const { follower } = follow<string>(
    await folder(),
    async () => pending.shift(),
    async (content) => {
      delivered.push(content);
      return 0;
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
  const pending = [unitOf('a record', 1, 1)];
  const { follower, logged } = follow<string>(
    directory,
    async () => pending.shift(),
    async (content) => {
      delivered.push(content);
      return 0;
    },
  );
  await until(async () => (await follower.status()).failures > 1);
  expect(delivered).toEqual(['a record']);
  const reason = expect.stringMatching(`^${join(directory, 's.sink')} cannot be written: EISDIR`);
  expect(logged).toEqual([expect.objectContaining({ reason })]);
  await follower.finish(AbortSignal.abort());
});

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
