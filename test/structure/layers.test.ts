import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';

/** Imports go to a lower layer only; folders of one layer don't import each other. */
const LAYERS: Readonly<Record<string, number>> = {
  base: 0,
  digest: 1,
  http1: 1,
  policy: 1,
  metrics: 1,
  simulator: 1,
  redis: 1,
  tracing: 1,
  audit: 2,
  challenges: 2,
  credentials: 2,
  config: 2,
  limits: 2,
  identity: 3,
  handshake: 3,
  transport: 4,
  upstream: 5,
  gateway: 6,
  control: 6,
  doctor: 6,
  setup: 7,
  app: 8,
  witness: 8,
  fleet: 9,
  cli: 10,
};

/** Subfolders of a folder, and its own files (''), in their order: each imports from earlier ones and itself only. */
const SUBFOLDERS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  audit: [[''], ['segments'], ['journal', 'reader'], ['shipping']],
};

/** Folders that compute only: no I/O, clock or randomness. */
const PURE_IMPORTS: Readonly<Record<string, readonly string[]>> = {
  digest: ['node:crypto'],
  policy: [],
};

const root = fileURLToPath(new URL('../../src', import.meta.url));
const files = globSync('**/*.{ts,tsx,js}', { cwd: root });

interface Import {
  readonly file: string;
  readonly specifier: string;
}

function importsOf(file: string, text: string): Import[] {
  const statements = text.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)'([^']+)'/g);
  return Array.from(statements, ([, specifier = '']) => ({ file, specifier }));
}

/** The folder of a path below src. */
function folderOf(path: string): string {
  const [first = ''] = path.split('/');
  return first;
}

/** Imports within a folder that do not keep the order of its subfolders. */
function subfolderViolations(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier }) => {
    const target = specifier.startsWith('.') ? join(dirname(file), specifier) : '';
    const order = SUBFOLDERS[folderOf(file)];
    if (order === undefined || folderOf(target) !== folderOf(file)) return [];
    const [from, to] = [subfolderOf(file), subfolderOf(target)];
    const earlier = rankOf(order, to) < rankOf(order, from);
    return from === to || earlier ? [] : [`${file} -> ${target}`];
  });
}

/** The subfolder of a path in its folder; empty: it stands in the folder itself. */
function subfolderOf(path: string): string {
  return path.split('/').slice(1, -1).join('/');
}

function rankOf(order: readonly (readonly string[])[], folder: string): number {
  const rank = order.findIndex((folders) => folders.includes(folder));
  return rank === -1 ? Number.NaN : rank;
}

function violations(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier }) => {
    const from = folderOf(file);
    if (!specifier.startsWith('.')) {
      const allowed = PURE_IMPORTS[from];
      return allowed === undefined || allowed.includes(specifier) ? [] : [`${file} -> ${specifier}`];
    }
    const target = join(dirname(file), specifier);
    const to = folderOf(target);
    const lower = (LAYERS[to] ?? Number.NaN) < (LAYERS[from] ?? Number.NaN);
    return from === to || lower ? [] : [`${file} -> ${target}`];
  });
}

describe('the layers of src', () => {
  const imports = files.flatMap((file) => importsOf(file, readFileSync(join(root, file), 'utf8')));

  test('every file stands in a folder with a layer', () => {
    expect(files.filter((file) => LAYERS[folderOf(file)] === undefined)).toEqual([]);
    expect(imports.length).toBeGreaterThan(files.length);
  });

  test('imports go to a lower layer only', () => expect(violations(imports)).toEqual([]));

  test('imports between the subfolders of a folder go one way', () => {
    expect(subfolderViolations(imports)).toEqual([]);
    const inSubfolders = files.filter((file) => SUBFOLDERS[folderOf(file)] !== undefined);
    expect(
      inSubfolders.filter((file) =>
        Number.isNaN(rankOf(SUBFOLDERS[folderOf(file)] ?? [], subfolderOf(file))),
      ),
    ).toEqual([]);
  });

  test('only cli touches process', () => {
    const touching = files.filter((file) =>
      /\bprocess\./.test(withoutComments(readFileSync(join(root, file), 'utf8'))),
    );
    expect(touching.filter((file) => folderOf(file) !== 'cli')).toEqual([]);
  });

  test('the check sees what it forbids', () => {
    const upward = importsOf(
      'digest/a.ts',
      "import { x } from '../gateway/b.ts';\nimport fs from 'node:fs';",
    );
    const sideways = importsOf('gateway/a.ts', "const c = await import('../control/c.ts');");
    expect(violations([...upward, ...sideways])).toHaveLength(3);
    expect(violations(importsOf('gateway/a.ts', "export { b } from '../digest/b.ts';"))).toEqual([]);
    const back = importsOf('audit/a.ts', "import { b } from './segments/b.ts';");
    const across = importsOf('audit/reader/a.ts', "import { b } from '../journal/b.ts';");
    expect(subfolderViolations([...back, ...across])).toHaveLength(2);
    expect(subfolderViolations(importsOf('audit/shipping/a.ts', "import { b } from '../audit.ts';"))).toEqual(
      [],
    );
  });
});

describe('the size of files', () => {
  test('no source file is longer than 400 lines', () => {
    const long = files.filter((file) => readFileSync(join(root, file), 'utf8').split('\n').length > 401);
    expect(long.map((file) => relative(root, join(root, file)))).toEqual([]);
  });
});

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
}
