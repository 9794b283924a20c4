import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { repository } from './repository.ts';

/** Longer than a run of the tests, in milliseconds: another run may use what an earlier state of the sources gave. */
const KEPT_MS = 3_600_000;

/**
 * Resolves to the folder that `build` has filled, once for each state of these sources (glob patterns) and of the
 * dependencies. It is below `node_modules`, so what is in it finds the dependencies.
 */
export async function builtOnce(
  name: string,
  sources: readonly string[],
  build: (folder: string) => Promise<void>,
): Promise<string> {
  const cache = join(repository, 'node_modules/.cache', name);
  const hash = createHash('sha256');
  for (const file of ['package-lock.json', ...globSync(sources, { cwd: repository }).sort()]) {
    hash.update(file).update(readFileSync(join(repository, file)));
  }
  const folder = join(cache, hash.digest('hex').slice(0, 16));
  const now = new Date();
  const isThere = await utimes(folder, now, now).then(
    () => true,
    () => false,
  );
  if (isThere) return folder;
  await mkdir(cache, { recursive: true });
  await removeUnused(cache);
  // An interrupted build does not get the name of a whole one.
  const part = await mkdtemp(join(cache, 'part-'));
  await build(part);
  // Another process may have been quicker.
  await rename(part, folder).catch(() => rm(part, { recursive: true }));
  return folder;
}

async function removeUnused(cache: string): Promise<void> {
  for (const name of await readdir(cache)) {
    const folder = join(cache, name);
    const { mtimeMs } = await stat(folder).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > KEPT_MS) await rm(folder, { recursive: true, force: true });
  }
}
