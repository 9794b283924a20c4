import { chmodSync, closeSync, constants, lstatSync, openSync } from 'node:fs';
import { access, mkdir, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { errorCode } from '../../base/error-code.ts';

/** File systems in which no user can create a folder, whatever its permissions say: proc, sysfs. */
const PSEUDO = new Set([0x9fa0, 0x62656572]);
/** Codes of SQLite: https://www.sqlite.org/rescode.html */
const SQLITE_BUSY = 5;
const SQLITE_CANTOPEN = 14;

/**
 * Why this user cannot create a folder, or write to it; undefined: it can. Leaves nothing behind.
 * @returns the end of a sentence about the folder, and what to do
 */
export async function folderIssue(folder: string): Promise<string | undefined> {
  for (let path = folder; ; path = dirname(path)) {
    try {
      if (!(await stat(path)).isDirectory())
        return `cannot be used: ${path} is not a folder; name another one`;
      await access(path, constants.W_OK | constants.X_OK);
      const { type } = await statfs(path);
      return PSEUDO.has(type) ? `cannot be made: ${path} belongs to the kernel; name another one` : undefined;
    } catch (error) {
      if (errorCode(error) === 'ENOENT' && path !== dirname(path)) continue;
      return `cannot be written to: ${path} ${reasonOf(error)}`;
    }
  }
}

function reasonOf(error: unknown): string {
  switch (errorCode(error)) {
    case 'EACCES':
    case 'EPERM':
      return 'may not be written by this user; give it write permission, or name another folder';
    case 'EROFS':
      return 'is on a file system that is read-only; name another folder';
    case 'ENOTDIR':
      return 'is not a folder, or leads through a file; name another folder';
    default:
      return `fails with ${errorCode(error) || 'an unknown error'}; name another folder`;
  }
}

/**
 * Creates a folder for this user alone, with its parents.
 * @throws Error of the file system
 */
export async function makeFolder(folder: string): Promise<void> {
  // On some file systems `recursive` never ends.
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return;
    if (errorCode(error) !== 'ENOENT' || folder === dirname(folder)) throw error;
    await makeFolder(dirname(folder));
    await mkdir(folder, { mode: 0o700 }).catch((again) => {
      if (errorCode(again) !== 'EEXIST') throw again;
    });
  }
}

/** Keeps other processes from writing to a folder, or to a file. */
export interface Lock {
  release(): void;
}

/** The file with the lock of a folder. */
export const LOCK = 'lock';

/**
 * Takes the lock of a folder.
 * @throws Error if another process has it; it says what to do
 */
export function lockFolder(folder: string): Lock {
  const owner =
    'belongs to another gateway that is running: stop that one, or give each its own audit.replica';
  return lockFile(join(folder, LOCK), `${folder} ${owner}`);
}

/**
 * Takes a lock: the kernel's lock on an SQLite file. It ends with the process, however the process ends, and unlike a
 * process number it cannot be mistaken, not even between containers. `taken`: the message if another process has it.
 * @throws Error
 */
export function lockFile(file: string, taken: string): Lock {
  // SQLite would follow a link and change the file that it leads to.
  if (lstatSync(file, { throwIfNoEntry: false })?.isFile() === false) {
    throw new Error(`${file} is not a regular file: remove it`);
  }
  const database = new DatabaseSync(file, { timeout: 0, open: false });
  try {
    database.open();
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
    chmodSync(file, 0o600);
  } catch (error) {
    if (database.isOpen) database.close();
    const code = sqliteCode(error);
    // SQLite does not say why, and not which file.
    if (code === SQLITE_CANTOPEN) closeSync(openSync(file, 'r+'));
    throw code === SQLITE_BUSY ? new Error(taken, { cause: error }) : error;
  }
  return {
    release: () => {
      if (database.isOpen) database.close();
    },
  };
}

function sqliteCode(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'errcode' in error ? error.errcode : undefined;
}
