import { constants } from 'node:fs';
import { access, mkdir, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isNativeError } from 'node:util/types';

/** Of file systems in which nobody can make a folder, whatever its permissions say: proc, sysfs. */
const PSEUDO = new Set([0x9fa0, 0x62656572]);

/**
 * Why a folder cannot be made, or be written to, by this user; undefined: it can. Leaves nothing behind.
 * @returns the end of a sentence about the folder, and what to do
 */
export async function objectionToFolder(folder: string): Promise<string | undefined> {
  for (let path = folder; ; path = dirname(path)) {
    try {
      if (!(await stat(path)).isDirectory())
        return `cannot be used: ${path} is not a folder; name another one`;
      await access(path, constants.W_OK | constants.X_OK);
      const { type } = await statfs(path);
      return PSEUDO.has(type) ? `cannot be made: ${path} belongs to the kernel; name another one` : undefined;
    } catch (error) {
      if (codeOf(error) === 'ENOENT' && path !== dirname(path)) continue;
      return `cannot be written to: ${path} ${reasonOf(error)}`;
    }
  }
}

function reasonOf(error: unknown): string {
  switch (codeOf(error)) {
    case 'EACCES':
    case 'EPERM':
      return 'may not be written by this user; give it write permission, or name another folder';
    case 'EROFS':
      return 'is on a file system that is read-only; name another folder';
    case 'ENOTDIR':
      return 'is not a folder, or leads through a file; name another folder';
    default:
      return `fails with ${codeOf(error)}; name another folder`;
  }
}

function codeOf(error: unknown): string {
  return isNativeError(error) && 'code' in error ? String(error.code) : 'an unknown error';
}

/** Makes a folder for this user alone, and those above it. Not `recursive`: on some file systems that never ends. */
export async function makeFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return;
    if (codeOf(error) !== 'ENOENT' || folder === dirname(folder)) throw error;
    await makeFolder(dirname(folder));
    await mkdir(folder, { mode: 0o700 }).catch((again) => {
      if (codeOf(again) !== 'EEXIST') throw again;
    });
  }
}
