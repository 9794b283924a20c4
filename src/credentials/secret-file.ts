import { constants, type Stats } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { isNativeError } from 'node:util/types';

const LARGEST = 64 * 1024;

/**
 * The text of a file that holds a secret, without one newline at its end. Throws an Error whose
 * message says what is wrong with the file and never quotes it. `uid` is the user of this process;
 * without one, the file's owner is not checked.
 */
export async function readSecretFile(file: string, uid?: number): Promise<string> {
  let handle: FileHandle;
  try {
    // Without O_NONBLOCK a named pipe would hold the start until somebody writes into it.
    handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new Error(`${file} ${whyClosed(error)}`, { cause: error });
  }
  try {
    // Of the open handle: a path could be exchanged between check and reading.
    const objection = objectionTo(await handle.stat(), uid);
    if (objection !== undefined) {
      throw new Error(`${file} ${objection}`);
    }
    return decode(await handle.readFile(), file).replace(/\r?\n$/, '');
  } finally {
    await handle.close();
  }
}

function whyClosed(error: unknown): string {
  switch (isNativeError(error) && 'code' in error ? error.code : undefined) {
    case 'ENOENT':
      return 'does not exist: create it, or name another file';
    case 'EACCES':
      return 'may not be read by this user: make this user its owner';
    default:
      return 'cannot be opened: name a readable file';
  }
}

function objectionTo(stats: Stats, uid: number | undefined): string | undefined {
  if (!stats.isFile()) {
    return 'is not a regular file: name one';
  }
  // A group may read: that is how an orchestrator hands a file of root's to a process.
  if ((stats.mode & 0o026) !== 0) {
    return 'can be read or written by others: run chmod 600 on it';
  }
  if (uid !== undefined && stats.uid !== uid && stats.uid !== 0) {
    return 'belongs to another user, who could exchange it: make this user or root its owner';
  }
  return stats.size > LARGEST ? `is larger than ${LARGEST} bytes: name the file of one secret` : undefined;
}

function decode(bytes: Buffer, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file} is not UTF-8 text: save it as UTF-8`);
  }
}
