import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { missingTests, namedTests } from '../conformance.ts';
import { repository } from '../repository.ts';

/** Prints, after everything else, what did not run, what ran again, and the one line that CI reads: `N passed, N failed`. */
export default class CountReporter {
  #error;

  onRunComplete(_contexts, results) {
    const tests = results.testResults.flatMap((file) => file.testResults);
    const again = tests.filter(({ status, invocations }) => status === 'passed' && invocations > 1);
    for (const { fullName } of again) print(`passed when it ran again: ${fullName}`);
    const missing = readFileSync(process.env.TESTS_NOT_RUN, 'utf8').split('\n').filter(Boolean);
    removeFolder();
    for (const reason of new Set(missing)) {
      print(`not run: ${missing.filter((other) => other === reason).length} tests of ${reason}`);
    }
    const gone = missingTests(namedTests(), (path) => titlesIn(results, path));
    for (const test of gone) print(`docs/generate/conformance/ names a test that is gone: ${test}`);
    if (gone.length > 0) this.#error = new Error('tests that docs/generate/conformance/ names are gone');
    // A suite that could not even load has no test to count, and must not look like a pass.
    const failed = results.numFailedTests + results.numRuntimeErrorTestSuites + gone.length;
    print(`${again.length} ran again, ${missing.length} not run`);
    print(`\n${results.numPassedTests} passed, ${failed} failed`);
  }

  /** Jest ends with status 1 if there is one. */
  getLastError() {
    return this.#error;
  }
}

/** Removes the temporary files of the run, and names those that its tests should have removed. */
function removeFolder() {
  const { TESTS_NOT_RUN } = process.env;
  const folder = dirname(TESTS_NOT_RUN);
  // The browser ends with the process that started it, and its profile stays.
  const left = readdirSync(folder).filter(
    (name) => name !== basename(TESTS_NOT_RUN) && !name.startsWith('playwright'),
  );
  if (left.length > 0) print(`left in the temporary folder: ${left.join(', ')}`);
  try {
    rmSync(folder, { recursive: true, maxRetries: 10 });
  } catch (error) {
    // The next run tries again.
    print(String(error));
  }
}

/** The titles of a file's tests; undefined: it did not run, or could not be loaded. */
function titlesIn(results, path) {
  const file = results.testResults.find(({ testFilePath }) => testFilePath === join(repository, path));
  return file?.testExecError ? undefined : file?.testResults.map(({ title }) => title);
}

function print(line) {
  process.stdout.write(`${line}\n`);
}
