import { constants } from 'node:fs';
import { type FileHandle, lstat, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorCode } from './error-code.ts';
import { ignoreAbsent, ignoreSystemError } from './expected-errors.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/**
 * Replaces a file, which only its owner can read: after a crash there is the old content or the new one. As root, the
 * owner stays the same; that of a new file is the owner of its folder.
 * @throws Error of the file system
 */
export async function replaceDurably(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  // Something else than a file may stand there.
  await rm(temporary, { force: true, recursive: true });
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    await giveToOwner(handle, path);
    await handle.writeFile(text);
    // Without this, some file systems keep the name and lose the content when the machine fails.
    await handle.datasync();
  } finally {
    await handle.close();
  }
  await rename(temporary, path);
}

/**
 * Creates a file with this content, on disk when it resolves. Of one that cannot be written whole, nothing is left that
 * the next attempt would take for a file of somebody else.
 * @throws Error of the file system: EEXIST if something stands there
 */
export async function createDurably(path: string, content: string | Buffer, mode: number): Promise<void> {
  const handle = await open(path, 'wx', mode);
  try {
    await handle.writeFile(content);
    await handle.sync();
    await syncDirectoryIfPossible(dirname(path));
  } catch (error) {
    await rm(path).catch(ignoreSystemError);
    throw error;
  } finally {
    await handle.close();
  }
}

/** Without this, a command that root runs would leave files that the gateway's user cannot read. */
async function giveToOwner(handle: FileHandle, path: string): Promise<void> {
  const { uid, gid } = await handle.stat();
  // Only root can give files away.
  if (uid !== 0) return;
  const owner = (await lstat(path).catch(ignoreAbsent)) ?? (await lstat(dirname(path)));
  if (owner.uid === uid && owner.gid === gid) return;
  // Root of a container may lack the capability: the file is its own then.
  await handle.chown(owner.uid, owner.gid).catch(ignoreSystemError);
}

/** Makes the entries of a directory durable: a crash of the machine would bring those before back. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the entries of a directory durable where the file system can do that. */
export async function syncDirectoryIfPossible(directory: string): Promise<void> {
  await syncDirectory(directory).catch((error: unknown) => {
    // Some file systems of networks and of Windows cannot do that.
    if (!['EINVAL', 'EPERM', 'EISDIR', 'ENOTSUP'].includes(errorCode(error))) throw error;
  });
}
