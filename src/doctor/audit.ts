import { mkdtemp, rmdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { isNativeError } from 'node:util/types';
import { type Finding, fine, wrong } from './finding.ts';

const MEBIBYTE = 2 ** 20;
/** Less free space than that, in bytes, is gone before somebody looks. */
const SCARCE = 1024 * MEBIBYTE;

/** Whether the directory of the audit log is there, takes files, and has room. */
export async function examineAudit(directory: string): Promise<Finding> {
  const isDirectory = await stat(directory).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isDirectory) return wrong('audit', 'audit-missing', `${directory} is not a directory that exists`);
  try {
    // Permissions alone would not tell: root passes them, and a mount can be read-only.
    await rmdir(await mkdtemp(join(directory, '.doctor-')));
  } catch (error) {
    const code = isNativeError(error) && 'code' in error ? String(error.code) : 'unknown';
    return wrong('audit', 'audit-not-writable', `${directory} takes no file (${code})`);
  }
  const { bavail, bsize } = await statfs(directory);
  const freeBytes = bavail * bsize;
  const saw = `${directory} is writable, ${Math.floor(freeBytes / MEBIBYTE)} MiB free`;
  const facts = { freeBytes };
  return freeBytes < SCARCE ? wrong('audit', 'audit-disk-full', saw, facts) : fine('audit', saw, facts);
}
