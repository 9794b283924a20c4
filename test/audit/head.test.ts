import { afterEach, expect, jest, test } from '@jest/globals';
import { formatHead } from '../../src/audit/seal.ts';
import { type OpenedAudit, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { verified } from '../support/verified-log.ts';

const folder = useFolders();
afterEach(() => {
  jest.useRealTimers();
});

/** All but the clock that measures how long something takes. */
const NOT_FAKED = [
  ...(['Date', 'hrtime', 'nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate'] as const),
  ...(['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout'] as const),
];

function headsIn({ logged }: OpenedAudit): unknown[] {
  return logged.filter(({ msg }) => msg === 'audit head').map(({ head }) => head);
}

/** The end of the log in the folder, as `audit verify` prints it. */
async function endOf(directory: string): Promise<string | undefined> {
  const { heads } = await verified(directory);
  return heads.map(formatHead).at(0);
}

test('a gateway logs the head of its audit log with the first seal, and at its end', async () => {
  const directory = await folder();
  const opened = await openTestAudit(directory);
  expect(headsIn(opened)).toEqual([]);
  await recordAccess(opened.audit);
  const first = await endOf(directory);
  expect(headsIn(opened)).toEqual([first]);
  for (let count = 0; count < 10; count += 1) await recordAccess(opened.audit);
  expect(headsIn(opened)).toEqual([first]);
  await opened.audit.close();
  expect(headsIn(opened)).toEqual([first, await endOf(directory)]);
});

test('a head is logged once a minute', async () => {
  jest.useFakeTimers({ doNotFake: [...NOT_FAKED] });
  const opened = await openTestAudit(await folder());
  const heads: number[] = [];
  for (const ms of [1, 59_999, 1, 0]) {
    jest.advanceTimersByTime(ms);
    await recordAccess(opened.audit);
    heads.push(headsIn(opened).length);
  }
  await opened.audit.close();
  expect(heads).toEqual([1, 1, 2, 2]);
});

test('a head that has not moved since is not logged again', async () => {
  const directory = await folder();
  const busy = await openTestAudit(directory);
  await recordAccess(busy.audit);
  await busy.audit.close();
  const idle = await openTestAudit(directory);
  await idle.audit.close();
  expect([headsIn(busy).length, headsIn(idle)]).toEqual([1, []]);
});
