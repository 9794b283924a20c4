import { globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Thrown by a test if this machine lacks a package that it needs; `jest/environment.js` recognises it by its name. */
export class MissingPackageError extends Error {
  override readonly name = 'MissingPackageError';

  constructor(name: string) {
    super(`the package ${name} is not installed: apt-get install --no-install-recommends ${name}`);
  }
}

const FOLDERS = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/sbin'];

/** A program on the PATH, or the pattern of a file, for each package of `system-packages.txt`. */
const places = new Map<string, string>(
  readFileSync(new URL('system-packages.txt', import.meta.url), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(' ') as [string, string]),
);

const installed = new Map<string, boolean>();

/** @throws MissingPackageError if this machine lacks one of the packages */
export function needPackages(...names: readonly string[]): void {
  for (const name of names) {
    const place = places.get(name);
    if (place === undefined) throw new Error(`system-packages.txt does not list ${name}`);
    let isThere = installed.get(name);
    if (isThere === undefined) {
      isThere = isInstalled(place);
      installed.set(name, isThere);
    }
    if (!isThere) throw new MissingPackageError(name);
  }
}

/**
 * Checks the package of a program that a test runs by its name; programs that no package is listed for are there.
 * @throws MissingPackageError if this machine lacks it
 */
export function needProgram(program: string): void {
  for (const [name, place] of places) if (place === program) needPackages(name);
}

function isInstalled(place: string): boolean {
  if (place.startsWith('/')) return globSync(place).length > 0;
  return FOLDERS.some(
    (folder) => statSync(join(folder, place), { throwIfNoEntry: false })?.isFile() === true,
  );
}
