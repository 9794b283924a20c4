import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { importedPackages, lockedPackages, shippedPackages } from './shipped.ts';

// Prints a CycloneDX SBOM of all code that the program runs: `npm run -s sbom`. npm makes it from a lock in which what the
// build copies is a dependency, and what only developers need is not.

const ARGUMENTS = ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx', '--sbom-type', 'application'];

const temporary = mkdtempSync(join(tmpdir(), 'sbom-'));
try {
  // npm takes the name of the component from the folder.
  const folder = join(temporary, 'digest-gateway');
  mkdirSync(folder);
  const { devDependencies, dependencies, ...manifest } = read('package.json');
  const all: Record<string, string> = { ...devDependencies, ...dependencies };
  const names = new Set([...Object.keys(dependencies ?? {}), ...importedPackages()]);
  const own = { ...manifest, dependencies: Object.fromEntries([...names].map((name) => [name, all[name]])) };
  const { '': root } = lockedPackages();
  const { devDependencies: _, ...rootEntry } = root ?? {};
  const packages = { '': { ...rootEntry, dependencies: own.dependencies }, ...shippedPackages() };
  write(folder, 'package.json', own);
  write(folder, 'package-lock.json', { ...read('package-lock.json'), packages });
  process.stdout.write(execFileSync('npm', ARGUMENTS, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] }));
} finally {
  rmSync(temporary, { recursive: true });
}

function read(name: string): Record<string, Record<string, string>> {
  return JSON.parse(readFileSync(new URL(`../${name}`, import.meta.url), 'utf8'));
}

function write(folder: string, name: string, content: object): void {
  writeFileSync(join(folder, name), JSON.stringify(content));
}
