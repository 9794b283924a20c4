import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { readConformance } from '../../docs/generate/conformance.ts';
import { missingTests, namedTests } from '../support/conformance.ts';
import { repository } from '../support/repository.ts';

describe('docs/security/conformance.md', () => {
  test('names test files that exist', () => {
    const paths = namedTests().map((named) => named.split(' › ')[0] ?? '');
    expect(paths.filter((path) => !existsSync(join(repository, path)))).toEqual([]);
  });

  test('has every RFC once, and enough of each', () => {
    const counts = readConformance().map(
      ({ number, requirements }) => [number, requirements.length] as const,
    );
    expect(counts.map(([number]) => number)).toEqual([7616, 7615, 2617, 2069, 9110, 9112, 9111, 9209, 9457]);
    expect(counts.reduce((sum, [, count]) => sum + count, 0)).toBeGreaterThan(200);
  });
});

describe('a named test', () => {
  const missing = (title: string) =>
    missingTests([`test/a.test.ts › ${title}`], (path) =>
      path === 'test/a.test.ts' ? ['is there', 'holds: a row', 'of (5) bytes'] : undefined,
    );

  test.each(['is there', 'holds: a row', 'holds: %s', 'of (%d) bytes'])('is found: %s', (title) => {
    expect(missing(title)).toEqual([]);
  });

  test.each(['is', 'is there too', 'holds: another row', 'of 5 bytes'])('is gone: %s', (title) => {
    expect(missing(title)).toEqual([`test/a.test.ts › ${title}`]);
  });

  test('of a file that did not run is not judged', () => {
    expect(missingTests(['test/b.test.ts › is there'], () => undefined)).toEqual([]);
  });
});
