import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { access, chmod, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { SealedSection } from '../../src/credentials/sealed-file.ts';
import { needPackages } from '../support/system-packages.ts';

const run = promisify(execFile);

/** A sealed file with this plain text, made by Debian's `age`, and its identity, made by `age-keygen`. */
export async function sealedWith(
  folder: string,
  plain: string,
  flags: readonly string[] = [],
): Promise<SealedSection> {
  const file = join(folder, 'credentials.age');
  const identity = await keyFile(folder, 'identity.txt');
  needPackages('age');
  const child = execFile('age', [...flags, '-r', await recipientOf(identity), '-o', `${file}.made`]);
  child.stdin?.end(plain);
  const [status] = (await once(child, 'close')) as [number | null];
  if (status !== 0) throw new Error(`age ended with ${status}`);
  await chmod(`${file}.made`, 0o600);
  await rename(`${file}.made`, file);
  return { file, identity: { file: identity } };
}

/** An identity file, made where there is none. */
export async function keyFile(folder: string, name: string): Promise<string> {
  const file = join(folder, name);
  const there = await access(file).then(
    () => true,
    () => false,
  );
  needPackages('age');
  if (!there) await run('age-keygen', ['-o', file]);
  return file;
}

export async function recipientOf(identityFile: string): Promise<string> {
  return (await run('age-keygen', ['-y', identityFile])).stdout.trim();
}

/** The plain text of a sealed file, as `age` opens it. */
export async function openedByAge({ file, identity }: SealedSection): Promise<string> {
  if (!('file' in identity)) throw new TypeError('the identity is in no file');
  return (await run('age', ['-d', '-i', identity.file, file])).stdout;
}
