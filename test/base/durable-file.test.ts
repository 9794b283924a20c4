import { chown, lstat, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { replaceDurably } from '../../src/base/durable-file.ts';
import { useFolders } from '../support/audit-log.ts';

const folder = useFolders();
/** Only root can give files away. */
const asRoot = process.geteuid?.() === 0 ? test : test.skip;
const [USER, GROUP, OTHER] = [65_534, 65_533, 65_532];

async function ownerOf(path: string) {
  const { uid, gid, mode } = await lstat(path);
  return [uid, gid, mode & 0o777];
}

asRoot('a new file belongs to the owner of its folder, and to its owner alone', async () => {
  const place = await folder();
  await chown(place, USER, GROUP);
  await replaceDurably(join(place, 'file'), 'new');
  expect(await ownerOf(join(place, 'file'))).toEqual([USER, GROUP, 0o600]);
});

asRoot('a file that is replaced keeps its owner and its group', async () => {
  const place = await folder();
  const file = join(place, 'file');
  await writeFile(file, 'old');
  await chown(file, USER, GROUP);
  await chown(place, OTHER, OTHER);
  await replaceDurably(file, 'new');
  expect(await ownerOf(file)).toEqual([USER, GROUP, 0o600]);
  expect(await readFile(file, 'utf8')).toBe('new');
});

test('what stands where the new content is written is removed, and nothing is written through it', async () => {
  const place = await folder();
  await writeFile(join(place, 'other'), 'other');
  await symlink('other', join(place, 'file.tmp'));
  await replaceDurably(join(place, 'file'), 'one');
  await mkdir(join(place, 'file.tmp', 'in'), { recursive: true });
  await replaceDurably(join(place, 'file'), 'two');
  expect(await readFile(join(place, 'file'), 'utf8')).toBe('two');
  expect(await readFile(join(place, 'other'), 'utf8')).toBe('other');
});
