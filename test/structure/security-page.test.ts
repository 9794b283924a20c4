import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from '@jest/globals';
import { repository } from '../support/repository.ts';

/** Names in code spans of a line; one without a folder is in the folder of the one before. */
function testsIn(line: string): string[] {
  let folder = '';
  return Array.from(line.matchAll(/`([\w\-./]+(?:\.test\.ts|\/))`/g), ([, name = '']) => {
    if (!name.startsWith('test/')) return join(folder, name);
    folder = name.endsWith('/') ? name : dirname(name);
    return name;
  });
}

test('every test that docs/security.md names exists', () => {
  const page = readFileSync(join(repository, 'docs/security.md'), 'utf8');
  const named = page.split('\n').flatMap(testsIn);
  expect(named.length).toBeGreaterThan(20);
  expect(named.filter((name) => !existsSync(join(repository, name)))).toEqual([]);
});
