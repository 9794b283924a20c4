import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { createDurably, replaceDurably } from '../../src/base/durable-file.ts';
import { asRoot } from '../support/as-root.ts';
import { useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import { needPackages } from '../support/system-packages.ts';

const folder = useFolders();
const [USER, GROUP, OTHER] = [65_534, 65_533, 65_532];

/** Replaces a file as root, who alone can give files away. */
function replaceAsRoot(file: string, content: string): Promise<string> {
  const module = join(repository, 'src/base/durable-file.ts');
  const script = `import { replaceDurably } from ${JSON.stringify(module)};
    await replaceDurably(${JSON.stringify(file)}, ${JSON.stringify(content)});`;
  return asRoot(process.execPath, '--input-type=module', '--eval', script);
}

/** A folder that belongs to that user until the end of the test. */
async function folderOf(user: number, group: number): Promise<string> {
  const place = await folder();
  await asRoot('chown', `${user}:${group}`, place);
  const own = `${process.getuid?.()}:${process.getgid?.()}`;
  closing.push(async () => void (await asRoot('chown', '-R', own, place)));
  return place;
}

const ownerOf = (file: string): Promise<string> => asRoot('stat', '--format=%u %g %a', file);

test('a new file of root belongs to the owner of its folder, and to its owner alone', async () => {
  const file = join(await folderOf(USER, GROUP), 'file');
  await replaceAsRoot(file, 'new');
  expect(await ownerOf(file)).toBe(`${USER} ${GROUP} 600`);
});

test('a file that root replaces keeps its owner and its group', async () => {
  const file = join(await folderOf(OTHER, OTHER), 'file');
  await replaceAsRoot(file, 'old');
  await asRoot('chown', `${USER}:${GROUP}`, file);
  await replaceAsRoot(file, 'new');
  expect(await ownerOf(file)).toBe(`${USER} ${GROUP} 600`);
  expect(await asRoot('cat', file)).toBe('new');
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

test('of a new file that has no room nothing is left, and one that is there stays', async () => {
  const file = join(await folder(), 'file');
  const module = join(repository, 'src/base/durable-file.ts');
  const script = `import { createDurably } from ${JSON.stringify(module)};
    await createDurably(${JSON.stringify(file)}, 'new', 0o600).catch(({ code }) => process.stdout.write(code));`;
  const command = 'ulimit -f 0; exec "$0" --input-type=module --eval "$1"';
  const { printed } = await runCommand('sh', ['-c', command, process.execPath, script]);
  expect(printed).toBe('EFBIG');
  await createDurably(file, 'new', 0o600);
  await expect(createDurably(file, 'newer', 0o600)).rejects.toThrow('EEXIST');
  expect(await readFile(file, 'utf8')).toBe('new');
});

test('of a new file the name is on disk, too', async () => {
  needPackages('strace');
  const place = await folder();
  const module = join(repository, 'src/base/durable-file.ts');
  const script = `import { createDurably } from ${JSON.stringify(module)};
    await createDurably(${JSON.stringify(join(place, 'file'))}, 'new', 0o600);`;
  const trace = ['-f', '-qq', '-y', '-e', 'trace=fsync', '-e', 'signal=none'];
  const { printed } = await runCommand('strace', [
    ...trace,
    process.execPath,
    '--input-type=module',
    '--eval',
    script,
  ]);
  expect(printed).toMatch(new RegExp(`fsync\\(\\d+<${place}/file>`));
  expect(printed).toMatch(new RegExp(`fsync\\(\\d+<${place}>`));
});
