import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';

/** Imports go to a lower floor only; rooms on one floor don't import each other. */
const FLOORS: Readonly<Record<string, number>> = {
  base: 0,
  digest: 1,
  http1: 1,
  policy: 1,
  metrics: 1,
  simulator: 1,
  receivers: 1,
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
  fleet: 9,
  cli: 10,
};

/** Folders of a room, and the room's own files (''), in their order: each imports from earlier ones and itself only. */
const FOLDERS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  audit: [[''], ['segments'], ['journal', 'reader'], ['shipping']],
};

/** Rooms that compute only: no I/O, clock or randomness. */
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

/** The room of a path below src: its folder. */
function roomOf(path: string): string {
  const [first = ''] = path.split('/');
  return first;
}

/** Imports within a room that do not keep the order of its folders. */
function folderViolations(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier }) => {
    const target = specifier.startsWith('.') ? join(dirname(file), specifier) : '';
    const order = FOLDERS[roomOf(file)];
    if (order === undefined || roomOf(target) !== roomOf(file)) return [];
    const [from, to] = [folderOf(file), folderOf(target)];
    const earlier = rankOf(order, to) < rankOf(order, from);
    return from === to || earlier ? [] : [`${file} -> ${target}`];
  });
}

/** The folder of a path inside its room; empty: it stands in the room itself. */
function folderOf(path: string): string {
  return path.split('/').slice(1, -1).join('/');
}

function rankOf(order: readonly (readonly string[])[], folder: string): number {
  const rank = order.findIndex((folders) => folders.includes(folder));
  return rank === -1 ? Number.NaN : rank;
}

function violations(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier }) => {
    const from = roomOf(file);
    if (!specifier.startsWith('.')) {
      const allowed = PURE_IMPORTS[from];
      return allowed === undefined || allowed.includes(specifier) ? [] : [`${file} -> ${specifier}`];
    }
    const target = join(dirname(file), specifier);
    const to = roomOf(target);
    const lower = (FLOORS[to] ?? Number.NaN) < (FLOORS[from] ?? Number.NaN);
    return from === to || lower ? [] : [`${file} -> ${target}`];
  });
}

describe('the floors of src', () => {
  const imports = files.flatMap((file) => importsOf(file, readFileSync(join(root, file), 'utf8')));

  test('every file stands in a room with a floor', () => {
    expect(files.filter((file) => FLOORS[roomOf(file)] === undefined)).toEqual([]);
    expect(imports.length).toBeGreaterThan(files.length);
  });

  test('imports go to a lower floor only', () => expect(violations(imports)).toEqual([]));

  test('imports between the folders of a room go one way', () => {
    expect(folderViolations(imports)).toEqual([]);
    const inFolders = files.filter((file) => FOLDERS[roomOf(file)] !== undefined);
    expect(
      inFolders.filter((file) => Number.isNaN(rankOf(FOLDERS[roomOf(file)] ?? [], folderOf(file)))),
    ).toEqual([]);
  });

  test('only cli touches process', () => {
    const touching = files.filter((file) =>
      /\bprocess\./.test(withoutComments(readFileSync(join(root, file), 'utf8'))),
    );
    expect(touching.filter((file) => roomOf(file) !== 'cli')).toEqual([]);
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
    expect(folderViolations([...back, ...across])).toHaveLength(2);
    expect(folderViolations(importsOf('audit/shipping/a.ts', "import { b } from '../audit.ts';"))).toEqual(
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
