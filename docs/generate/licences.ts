import { readFileSync } from 'node:fs';
import { generatedFrom, page, wrap } from './markdown.ts';

const INTRODUCTION = [
  generatedFrom('package-lock.json'),
  '# Licences',
  wrap(
    'The gateway itself is under [Apache-2.0](../LICENSE). These are the packages that a production install has, and the licences that they declare. A new kind of licence fails a test.',
  ),
];

/** Packages for development whose code the build copies into `dist/console`. */
const BUNDLED = ['@preact/signals', '@preact/signals-core', 'preact', 'uplot'];

interface LockedPackage {
  readonly version: string;
  readonly license?: string;
  readonly dev?: boolean;
}

/** The text of docs/licences.md. */
export function licencesPage(): string {
  const packages = Object.entries(
    JSON.parse(read('package-lock.json')).packages as Record<string, LockedPackage>,
  );
  const rows = packages
    .filter(([folder, { dev }]) => folder !== '' && dev !== true)
    .map(
      ([folder, { version, license = 'not declared' }]) => `| ${nameOf(folder)} | ${version} | ${license} |`,
    );
  return page([
    ...INTRODUCTION,
    ['| Package | Version | Licence |', '|---|---|---|', ...[...new Set(rows)].sort()].join('\n'),
    '## In the console',
    wrap('The page of the console contains the code of other packages. Their licences ask for this notice.'),
    ...BUNDLED.flatMap((name) => [
      `### ${name}`,
      `    ${read(`node_modules/${name}/LICENSE`).trim().replaceAll('\n', '\n    ')}`.replace(/ +$/gm, ''),
    ]),
  ]);
}

function nameOf(folder: string): string {
  return folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

function read(name: string): string {
  return readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');
}
