import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { readConformance } from '../../docs/generate/conformance.ts';
import { repository } from '../support/repository.ts';

/** Identifiers of the vectors, which are titles of tests. */
const vectors: ReadonlySet<string> = new Set(
  ['challenges', 'digest-vectors'].flatMap((name) => {
    const text = readFileSync(join(repository, `test/vectors/${name}.json`), 'utf8');
    return Array.from(text.matchAll(/"id": ?"([^"]+)"/g), ([, id = '']) => id);
  }),
);

/** The text before the title of a test or a group: its call, or the table of its rows. */
const CALL = /(?:\b(?:test|describe)\(|\)\()\s*$/;

/**
 * Returns the first part of a reference that the tests do not have; undefined: it has them all. The first title is that of
 * a test or of a group; those behind it are below it, or the row of its table, or a vector.
 */
function missingPart(reference: string, textOf: (path: string) => string | undefined): string | undefined {
  const [path = '', title = '', ...others] = reference.split(' › ');
  const text = textOf(path);
  if (text === undefined) return path;
  if (!hasLiteral(text, title, CALL)) return title;
  return others.find((other) => !vectors.has(other) && !hasLiteral(text, other));
}

/** True if the text has this string literal; `before`: what stands before it. */
function hasLiteral(text: string, content: string, before = /$/): boolean {
  for (const quote of ["'", '"', '`']) {
    const literal = `${quote}${content}${quote}`;
    for (let at = text.indexOf(literal); at !== -1; at = text.indexOf(literal, at + 1)) {
      if (before.test(text.slice(Math.max(0, at - 200), at))) return true;
    }
  }
  return false;
}

const fileOf = (path: string): string | undefined => {
  const file = join(repository, path);
  return path.endsWith('.test.ts') && existsSync(file) ? readFileSync(file, 'utf8') : undefined;
};

describe('docs/conformance.md', () => {
  test.each(readConformance().map(({ number, requirements }) => [number, requirements] as const))(
    'RFC %i names tests that exist',
    (_number, requirements) => {
      const references = requirements.flatMap(({ tests = [] }) => tests);
      const missing = references.filter((reference) => missingPart(reference, fileOf) !== undefined);
      expect(missing).toEqual([]);
    },
  );

  test('has every RFC once, and enough of each', () => {
    const counts = readConformance().map(
      ({ number, requirements }) => [number, requirements.length] as const,
    );
    expect(counts.map(([number]) => number)).toEqual([7616, 7615, 2617, 2069, 9110, 9112, 9111, 9209, 9457]);
    expect(counts.reduce((sum, [, count]) => sum + count, 0)).toBeGreaterThan(200);
  });
});

describe('a reference to a test', () => {
  const text = `
describe('a group', () => {
  test.each([['a row', 1]])('holds: %s', () => {});
  // 'a comment' names no test
  test('is there', () => expect('a value').toBe('a value'));
});
`;
  const found = (titles: string) => missingPart(`test/a.test.ts › ${titles}`, () => text);

  test.each([
    'a group',
    'is there',
    'holds: %s',
    'holds: %s › a row',
    'a group › is there',
    'holds: %s › ai-next',
  ])('is found: %s', (titles) => expect(found(titles)).toBeUndefined());

  test.each([
    ['is not there', 'is not there'],
    ['a value', 'a value'],
    ['a comment', 'a comment'],
    ['holds: %s › another row', 'another row'],
    ['is', 'is'],
  ])('is missed: %s', (titles, part) => expect(found(titles)).toBe(part));

  test('is missed without its file', () => {
    expect(missingPart('test/none.test.ts › x', fileOf)).toBe('test/none.test.ts');
  });
});
