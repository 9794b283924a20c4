import { mkdtemp, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { FileWatch, stateOf } from '../../src/base/file-watch.ts';
import { until } from '../support/until.ts';

let folder: string;
let watch: FileWatch | undefined;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'file-watch-'));
});
afterEach(async () => {
  jest.useRealTimers();
  await watch?.close();
  await rm(folder, { recursive: true });
});

test('unusable files are read again ever less often, and at once when they change', async () => {
  const file = join(folder, 'file');
  await writeFile(file, 'one');
  let polls = 0;
  const readAt: number[] = [];
  jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask'] });
  const pending = () => jest.getTimerCount() > 0;
  const settled = async (): Promise<void> => {
    while (!pending()) await turn();
  };
  const poll = async (): Promise<void> => {
    polls += 1;
    jest.runOnlyPendingTimers();
    await settled();
  };
  watch = new FileWatch([file], async () => {
    readAt.push(polls);
    return false;
  });
  await repeat(poll, () => readAt.length === 6);
  const [first = 0, ...others] = readAt;
  expect(others.map((at) => at - first)).toEqual([1, 3, 7, 15, 31]);

  await writeFile(file, 'another');
  const changedAt = polls;
  await repeat(poll, () => readAt.length === 8);
  // One poll notices the change, and the next one that the file has settled.
  expect(readAt.slice(6).map((at) => at - changedAt)).toEqual([2, 3]);
});

test('files that are as they were before an unusable change are read again', async () => {
  const link = join(folder, 'link');
  await writeFile(join(folder, 'usable'), '');
  await symlink('usable', link);
  const read: string[] = [];
  watch = new FileWatch(
    [link],
    async () => {
      read.push(basename(await realpath(link)));
      return read.at(-1) === 'usable';
    },
    1,
  );
  await until(() => read.at(-1) === 'usable');
  await writeFile(join(folder, 'unusable'), '');
  await linkTo('unusable');
  await until(() => read.at(-1) === 'unusable');
  await linkTo('usable');
  await until(() => read.at(-1) === 'usable');

  async function linkTo(name: string): Promise<void> {
    await symlink(name, join(folder, 'new'));
    await rename(join(folder, 'new'), link);
  }
});

test('files are looked at one after the other, so that those of a mount that hangs take one thread', async () => {
  const files = Array.from({ length: 20 }, (_, at) => join(folder, `${at}`));
  await Promise.all(files.map((file) => writeFile(file, '')));
  const busy = () => process.getActiveResourcesInfo().filter((each) => each.startsWith('FSReq')).length;
  const before = busy();
  const state = stateOf(files);
  expect(busy() - before).toBe(1);
  expect((await state).split(';')).toHaveLength(20);
});

test('the end of a watch does not wait for a mount that hangs', async () => {
  const asked = Promise.withResolvers<void>();
  const hung = new FileWatch(
    () => {
      asked.resolve();
      return new Promise(() => {});
    },
    async () => true,
  );
  await asked.promise;
  await hung.close();
  expect(hung.closed).toBe(true);
});

async function repeat(step: () => Promise<void>, done: () => boolean): Promise<void> {
  while (!done()) await step();
}
