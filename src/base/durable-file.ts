import { constants } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';

const { O_CREAT, O_NOFOLLOW, O_RDONLY, O_TRUNC, O_WRONLY } = constants;

/**
 * Replaces a file, which only this user can read: after a crash there is the old content or the new one.
 * @throws Error of the file system
 */
export async function replaceDurably(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  // Something else than a file may stand there.
  await rm(temporary, { force: true, recursive: true });
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600);
  try {
    await handle.writeFile(text);
    // Without this, some file systems keep the name and lose the content when the machine fails.
    await handle.datasync();
  } finally {
    await handle.close();
  }
  await rename(temporary, path);
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
