import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { lockFile } from '../../src/audit/segments/replica-folder.ts';
import { useFolders } from '../support/audit-log.ts';

const folder = useFolders();

test('a lock that cannot be opened is told with its file and the reason of the file system', async () => {
  const file = join(await folder(), 'removed', 'lock');
  expect(() => lockFile(file, 'taken')).toThrow(`ENOENT: no such file or directory, open '${file}'`);
});

test('a lock is free again once it is released', async () => {
  const file = join(await folder(), 'lock');
  const lock = lockFile(file, 'it is taken');
  expect(() => lockFile(file, 'it is taken')).toThrow('it is taken');
  lock.release();
  lockFile(file, 'it is taken').release();
});
