import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Prints a CycloneDX SBOM of the production install: `npm run -s sbom`. npm makes it from a lock without the
// packages for development, because `npm sbom --omit dev` also omits packages that both need, such as yaml.

const ARGUMENTS = ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx', '--sbom-type', 'application'];

const temporary = mkdtempSync(join(tmpdir(), 'sbom-'));
try {
  // npm takes the name of the component from the folder.
  const folder = join(temporary, 'digest-gateway');
  mkdirSync(folder);
  const { devDependencies: _, ...manifest } = read('package.json');
  const lock = read('package-lock.json');
  const packages = Object.entries(lock['packages'] as Record<string, Record<string, unknown>>)
    .filter(([, { dev }]) => dev !== true)
    .map(([path, { devDependencies: _own, ...entry }]) => [path, entry]);
  write(folder, 'package.json', manifest);
  write(folder, 'package-lock.json', { ...lock, packages: Object.fromEntries(packages) });
  process.stdout.write(execFileSync('npm', ARGUMENTS, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] }));
} finally {
  rmSync(temporary, { recursive: true });
}

function read(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8'));
}

function write(folder: string, name: string, content: object): void {
  writeFileSync(join(folder, name), JSON.stringify(content));
}
