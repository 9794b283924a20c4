import { readConformance } from '../../docs/generate/conformance.ts';

/** A place for a value in a title of `test.each`. */
const PLACEHOLDER = /%[sdifpjo]/;

/** The tests that docs/security/conformance.md names: `path › title`. */
export function namedTests(): string[] {
  const tests = readConformance().flatMap(({ requirements }) =>
    requirements.flatMap((each) => each.tests ?? []),
  );
  return [...new Set(tests)];
}

/**
 * Returns those of the named tests that are gone. `titlesIn`: the titles of a file's tests, without those of the groups
 * around them; undefined: the file did not run.
 */
export function missingTests(
  named: readonly string[],
  titlesIn: (path: string) => readonly string[] | undefined,
): string[] {
  return named.filter((test) => {
    const [path = '', title = ''] = test.split(' › ');
    const pattern = new RegExp(`^${title.split(PLACEHOLDER).map(escaped).join('.*')}$`, 's');
    return titlesIn(path)?.some((each) => pattern.test(each)) === false;
  });
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
