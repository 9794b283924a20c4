import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { importedPackages, lockedPackages, shippedPackages } from '../../build/shipped.ts';
import { run } from '../support/installed-package.ts';
import { repository } from '../support/repository.ts';

/** Licences that ask for nothing but a notice. */
const LICENCES = ['0BSD', 'Apache-2.0', 'BSD-3-Clause', 'ISC', 'MIT'];

const { '': _, ...locked } = lockedPackages();
const all = Object.entries(locked);
const shipped = Object.entries(shippedPackages());

test('package-lock.json has the hash of each package, and says nothing of where it came from', () => {
  expect(all.length).toBeGreaterThan(100);
  expect(all.filter(([, { integrity }]) => !/^sha512-/.test(String(integrity)))).toEqual([]);
  expect(all.filter(([, entry]) => 'resolved' in entry)).toEqual([]);
});

test('packages whose code a user runs have licences that are known to fit', () => {
  expect(shipped.length).toBeGreaterThan(20);
  expect(shipped.filter(([, { license }]) => !LICENCES.includes(String(license)))).toEqual([]);
});

test('packages whose code a user runs have no install scripts, and are the same on every platform', () => {
  const special = ['hasInstallScript', 'os', 'cpu', 'libc', 'optional'];
  expect(shipped.filter(([, entry]) => special.some((key) => key in entry))).toEqual([]);
});

test('gateway and SDK use one copy of the OpenTelemetry API', () => {
  const copies = all.filter(([folder]) => folder.endsWith('/@opentelemetry/api'));
  expect(copies.map(([folder]) => folder)).toEqual(['node_modules/@opentelemetry/api']);
});

test('Dependabot updates each package whose code a user runs in a change of its own', async () => {
  const { updates } = parse(await readFile(join(repository, '.github/dependabot.yml'), 'utf8'));
  const alone: string[] = updates[0].groups.development['exclude-patterns'];
  const { devDependencies } = JSON.parse(await readFile(join(repository, 'package.json'), 'utf8'));
  const isAlone = (name: string): boolean =>
    alone.some(
      (pattern) => pattern === name || (pattern.endsWith('/*') && name.startsWith(pattern.slice(0, -1))),
    );
  const expected = Object.keys(devDependencies).filter((name) => `node_modules/${name}` in shippedPackages());
  expect(expected.length).toBeGreaterThan(10);
  expect(expected.filter((name) => !isAlone(name))).toEqual([]);
});

test('npm run sbom lists the packages whose code a user runs, with their hashes', async () => {
  const { bomFormat, components } = JSON.parse(await run('npm', ['run', '-s', 'sbom'], repository));
  expect(bomFormat).toBe('CycloneDX');
  const listed: string[] = components.map(
    ({ name, version }: Record<string, string>) => `${name}@${version}`,
  );
  const expected = shipped.map(
    ([folder, { version }]) => `${folder.split('node_modules/').at(-1)}@${version}`,
  );
  expect(new Set(listed)).toEqual(new Set(expected));
  expect(components.filter(({ hashes }: { hashes?: unknown[] }) => hashes?.length !== 1)).toEqual([]);
});

test('each package that the sources import is a dependency, or is copied by the build', async () => {
  const { dependencies, devDependencies } = JSON.parse(
    await readFile(join(repository, 'package.json'), 'utf8'),
  );
  const declared = Object.keys({ ...dependencies, ...devDependencies });
  const imported = [...importedPackages()];
  expect(imported.filter((name) => !declared.includes(name))).toEqual([]);
  // What the build leaves outside, and nothing needs, would be installed for nobody.
  expect(Object.keys(dependencies).filter((name) => !imported.includes(name))).toEqual([]);
});
