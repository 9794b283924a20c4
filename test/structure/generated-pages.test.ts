import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { generatedPages } from '../../docs/generate/pages.ts';
import { errorKinds } from '../../src/base/errors.ts';
import { repository } from '../support/repository.ts';

const pages = await generatedPages();

describe('the generated pages', () => {
  test.each([...pages])('docs/%s is what "npm run docs" writes', (name, text) => {
    expect(readFileSync(join(repository, 'docs', name), 'utf8')).toBe(text);
  });

  test('docs/errors.md has a section for every code', () => {
    const headings = (pages.get('errors.md') ?? '').match(/(?<=^## ).*$/gm) ?? [];
    expect(headings.toSorted()).toEqual(
      errorKinds()
        .map(([code]) => code)
        .toSorted(),
    );
  });
});
