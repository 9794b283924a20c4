import { expect, test } from '@jest/globals';
import { lockedPackages, run } from '../support/installed-package.ts';
import { repository } from '../support/repository.ts';

/** Licences that ask for nothing but a notice. */
const LICENCES = ['0BSD', 'Apache-2.0', 'BSD-3-Clause', 'ISC', 'MIT'];

const { '': _, ...locked } = await lockedPackages();
const all = Object.entries(locked);
const production = all.filter(([, { dev }]) => dev !== true);

test('package-lock.json has the hash of each package, and says nothing of where it came from', () => {
  expect(all.length).toBeGreaterThan(100);
  expect(all.filter(([, { integrity }]) => !/^sha512-/.test(String(integrity)))).toEqual([]);
  expect(all.filter(([, entry]) => 'resolved' in entry)).toEqual([]);
});

test('production dependencies have licences that are known to fit', () => {
  expect(production.length).toBeGreaterThan(20);
  expect(production.filter(([, { license }]) => !LICENCES.includes(String(license)))).toEqual([]);
});

test('production dependencies have no install scripts, and are the same on every platform', () => {
  const special = ['hasInstallScript', 'os', 'cpu', 'libc', 'optional'];
  expect(production.filter(([, entry]) => special.some((key) => key in entry))).toEqual([]);
});

test('gateway and SDK use one copy of the OpenTelemetry API', () => {
  const copies = all.filter(([folder]) => folder.endsWith('/@opentelemetry/api'));
  expect(copies.map(([folder]) => folder)).toEqual(['node_modules/@opentelemetry/api']);
});

test('npm run sbom lists the production dependencies with their hashes', async () => {
  const { bomFormat, components } = JSON.parse(await run('npm', ['run', '-s', 'sbom'], repository));
  expect(bomFormat).toBe('CycloneDX');
  const listed: string[] = components.map(
    ({ name, version }: Record<string, string>) => `${name}@${version}`,
  );
  const expected = production.map(
    ([folder, { version }]) => `${folder.split('node_modules/').at(-1)}@${version}`,
  );
  expect(new Set(listed)).toEqual(new Set(expected));
  expect(components.filter(({ hashes }: { hashes?: unknown[] }) => hashes?.length !== 1)).toEqual([]);
});
