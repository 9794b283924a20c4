import { constants, type Stats } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { errorCode } from './error-code.ts';

/** What a file may be to be trusted. */
export interface Guard {
  /** The user of this process; without one, the file's owner is not checked. */
  readonly uid?: number | undefined;
  readonly readableByOthers: boolean;
  /** In bytes. */
  readonly largest: number;
}

export interface GuardedBytes {
  readonly bytes: Buffer;
  readonly changedAt: Date;
}

/**
 * The content of a file that nobody but this user and root can exchange. Throws an Error whose message says
 * what is wrong with the file and never quotes it.
 */
export async function readGuardedFile(file: string, guard: Guard): Promise<GuardedBytes> {
  let handle: FileHandle;
  try {
    // Without O_NONBLOCK a named pipe would hold the start until somebody writes into it.
    handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new Error(`${file} ${whyClosed(error)}`, { cause: error });
  }
  try {
    // Of the open handle: a path could be exchanged between check and reading.
    const stats = await handle.stat();
    const issue = fileIssue(stats, guard);
    if (issue !== undefined) {
      throw new Error(`${file} ${issue}`);
    }
    return { bytes: await handle.readFile(), changedAt: stats.mtime };
  } finally {
    await handle.close();
  }
}

function whyClosed(error: unknown): string {
  switch (errorCode(error)) {
    case 'ENOENT':
      return 'does not exist: create it, or name another file';
    case 'EACCES':
      return 'may not be read by this user: make this user its owner';
    default:
      return 'cannot be opened: name a readable file';
  }
}

function fileIssue(stats: Stats, { uid, readableByOthers, largest }: Guard): string | undefined {
  if (!stats.isFile()) {
    return 'is not a regular file: name one';
  }
  // A group may read: that is how an orchestrator hands a file of root's to a process.
  if ((stats.mode & 0o022) !== 0) {
    return `can be written by others: run chmod ${readableByOthers ? 'go-w' : '600'} on it`;
  }
  if (!readableByOthers && (stats.mode & 0o004) !== 0) {
    return 'can be read by others: run chmod 600 on it, or say readableByOthers: true beside file';
  }
  if (uid !== undefined && stats.uid !== uid && stats.uid !== 0) {
    return 'belongs to another user, who could exchange it: make this user or root its owner';
  }
  return stats.size > largest ? `is larger than ${largest} bytes: name the right file` : undefined;
}

/** Throws an Error that names the file. */
export function decodeUtf8(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file} is not UTF-8 text: save it as UTF-8`);
  }
}
