import { globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { repository } from '../support/repository.ts';

/** Ignored files (.gitignore) and those of git itself. */
const UNTRACKED = new Set(['.git', 'node_modules', 'dist', 'coverage']);

const MARKER = /^(?:<<<<<<<|>>>>>>>) /m;

test('no file holds the markers of a merge conflict', () => {
  const files = globSync('**/*', { cwd: repository, exclude: (name) => UNTRACKED.has(name) })
    .map((name) => join(repository, name))
    .filter((file) => statSync(file).isFile());
  expect(files.length).toBeGreaterThan(500);
  expect(files.filter((file) => MARKER.test(readFileSync(file, 'utf8')))).toEqual([]);
});
