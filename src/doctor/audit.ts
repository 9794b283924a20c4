import { randomUUID } from 'node:crypto';
import { rm, stat, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errorCode } from '../base/error-code.ts';
import { type Finding, fine, wrong } from './finding.ts';

const MEBIBYTE = 2 ** 20;
/** Free space in bytes below which a warning is given. */
const SCARCE = 1024 * MEBIBYTE;

/** Checks that the audit directory exists or can be created, is writable, and has free space. */
export async function examineAudit(directory: string): Promise<Finding> {
  const existing = await nearestExisting(directory);
  const obstacle = await whyUnwritable(existing);
  if (obstacle !== undefined) {
    return wrong('audit', 'audit-not-writable', `cannot create a file in ${existing} (${obstacle})`);
  }
  if (existing !== directory) return wrong('audit', 'audit-missing', `${directory} does not exist`);
  const { bavail, bsize } = await statfs(directory);
  const freeBytes = bavail * bsize;
  const saw = `${directory} is writable, ${Math.floor(freeBytes / MEBIBYTE)} MiB free`;
  const facts = { freeBytes };
  return freeBytes < SCARCE ? wrong('audit', 'audit-disk-full', saw, facts) : fine('audit', saw, facts);
}

async function nearestExisting(path: string): Promise<string> {
  const code = await stat(path).then(() => '', errorCode);
  return code === 'ENOENT' && dirname(path) !== path ? nearestExisting(dirname(path)) : path;
}

/**
 * Creates a file, because permissions alone do not show it: root passes them, and a mount can be read-only.
 */
async function whyUnwritable(directory: string): Promise<string | undefined> {
  const file = join(directory, `.doctor-${randomUUID()}`);
  try {
    await writeFile(file, '', { flag: 'wx' });
    await rm(file);
    return undefined;
  } catch (error) {
    return errorCode(error) || 'unknown';
  }
}
