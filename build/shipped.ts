import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** An entry of package-lock.json. */
export interface LockedPackage {
  readonly version?: string;
  readonly dev?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly [key: string]: unknown;
}

/** Entries of package-lock.json by folder; the project itself is ''. */
export type LockedPackages = Readonly<Record<string, LockedPackage>>;

const ROOT = new URL('../', import.meta.url);
/** A package in an import; names of the modules of Node.js have a colon. */
const IMPORTED = /(?:from|import\(|require\() ?'((?:@[\w.-]+\/)?[a-z][\w.-]*)(?:\/[^']*)?'/g;

export function lockedPackages(): LockedPackages {
  return JSON.parse(readFileSync(new URL('package-lock.json', ROOT), 'utf8')).packages;
}

/**
 * Returns the packages whose code a user of the program runs: the dependencies of an installation, and what the build
 * copies into program and console, with all that these depend on.
 */
export function shippedPackages(): LockedPackages {
  const locked = lockedPackages();
  const shipped: Record<string, LockedPackage> = {};
  const add = (name: string, user: string): void => {
    const folder = folderOf(locked, name, user);
    if (folder === undefined || folder in shipped) return;
    const { dev: _, ...entry } = locked[folder] as LockedPackage;
    shipped[folder] = entry;
    for (const each of Object.keys(entry.dependencies ?? {})) add(each, folder);
  };
  for (const name of [...Object.keys(locked['']?.dependencies ?? {}), ...importedPackages()]) add(name, '');
  return shipped;
}

/** Returns the names of the packages that `src/` imports. */
export function importedPackages(): ReadonlySet<string> {
  const files = globSync('src/**/*.{ts,tsx}', { cwd: fileURLToPath(ROOT), exclude: ['**/vite.config.ts'] });
  const texts = files.map((file) => readFileSync(new URL(file, ROOT), 'utf8'));
  return new Set(texts.flatMap((text) => Array.from(text.matchAll(IMPORTED), ([, name = '']) => name)));
}

/** Returns where Node.js finds a package that the one in folder `user` depends on. */
function folderOf(locked: LockedPackages, name: string, user: string): string | undefined {
  for (let folder = user; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf('node_modules/') - 1))) {
    const candidate = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`;
    if (candidate in locked) return candidate;
    // An optional dependency of another platform.
    if (folder === '') return undefined;
  }
}
