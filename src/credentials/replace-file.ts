import { type FileHandle, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorCode } from '../base/error-code.ts';
import { ignoreSystemError } from '../base/expected-errors.ts';

const READ_WRITE_BITS = 0o666;

/** A file that could not be written. The message gives the reason and the remedy. */
export class ReplaceError extends Error {
  override readonly name = 'ReplaceError';
}

/**
 * Replaces the content of a file atomically. Owner and mode are kept; a new file is readable by this user
 * only. While `make` runs, no other call replaces this file.
 * @throws ReplaceError, or an error of `make`
 */
export async function replaceFile(file: string, make: () => Promise<string>): Promise<void> {
  // A symbolic link is kept; its target is replaced.
  const target = await realpath(file).catch((error: unknown) => ignoreSystemError(error) ?? file);
  const beside = `${target}.new`;
  // Created before the old content is read: of two concurrent writers, the second one fails instead of
  // overwriting.
  const handle = await open(beside, 'wx', 0o600).catch((error: unknown) => {
    throw new ReplaceError(whyNotMade(error, beside), { cause: error });
  });
  try {
    try {
      await fill(handle, await make(), target);
    } finally {
      await handle.close();
    }
    await rename(beside, target);
  } catch (error) {
    await rm(beside, { force: true });
    throw error;
  }
  await flushFolder(dirname(target));
}

async function fill(handle: FileHandle, content: string, target: string): Promise<void> {
  await handle.writeFile(content);
  const old = await stat(target).catch(ignoreSystemError);
  if (old !== undefined) {
    await handle.chown(old.uid, old.gid).catch((error: unknown) => {
      const whose = `${target} belongs to another user, who could not read it afterwards`;
      throw new ReplaceError(`${whose}: run this as that user, or as root`, { cause: error });
    });
    await handle.chmod(old.mode & READ_WRITE_BITS);
  }
  await handle.sync();
}

/** Without the sync the new name may be lost in a crash of the machine. */
async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function whyNotMade(error: unknown, beside: string): string {
  switch (errorCode(error)) {
    case 'EEXIST':
      return `${beside} exists: another command writes at this moment; if none does, one was interrupted, and you may remove it`;
    case 'ENOENT':
      return `${dirname(beside)} does not exist: create this folder`;
    case 'EACCES':
    case 'EROFS':
      return `${dirname(beside)} may not be written by this user: give it write permission`;
    default:
      return `${beside} cannot be written: look at the disk`;
  }
}
