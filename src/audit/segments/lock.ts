import { chmodSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

const SQLITE_BUSY = 5;

/** Keeps every other process from writing into the same folder. */
export interface Lock {
  release(): void;
}

/**
 * Takes the lock of a folder. It is SQLite's on a file of its own, so a lock of the kernel: it ends with the
 * process, however that ends, and no process number can be mistaken, not even between containers.
 * @throws Error that says so when another process has it
 */
export function lockFolder(folder: string): Lock {
  const file = join(folder, 'lock');
  // A link would be followed by SQLite, and what it leads to changed.
  if (lstatSync(file, { throwIfNoEntry: false })?.isFile() === false) {
    throw new Error(`${file} is no regular file: remove it`);
  }
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
    chmodSync(file, 0o600);
  } catch (error) {
    database.close();
    if (!isBusy(error)) throw error;
    throw new Error(
      `${folder} belongs to another gateway that is running: stop that one, or give each its own audit.replica`,
      { cause: error },
    );
  }
  return {
    release: () => {
      if (database.isOpen) database.close();
    },
  };
}

function isBusy(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'errcode' in error && error.errcode === SQLITE_BUSY;
}
