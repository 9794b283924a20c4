import { readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';

/** Prints, after everything else, what did not run, what ran again, and the one line that CI reads: `N passed, N failed`. */
export default class CountReporter {
  onRunComplete(_contexts, results) {
    const tests = results.testResults.flatMap((file) => file.testResults);
    const again = tests.filter(({ status, invocations }) => status === 'passed' && invocations > 1);
    for (const { fullName } of again) print(`passed when it ran again: ${fullName}`);
    const missing = readFileSync(process.env.TESTS_NOT_RUN, 'utf8').split('\n').filter(Boolean);
    rmSync(dirname(process.env.TESTS_NOT_RUN), { recursive: true });
    for (const reason of new Set(missing)) {
      print(`not run: ${missing.filter((other) => other === reason).length} tests of ${reason}`);
    }
    // A suite that could not even load has no test to count, and must not look like a pass.
    const failed = results.numFailedTests + results.numRuntimeErrorTestSuites;
    print(`${again.length} ran again, ${missing.length} not run`);
    print(`\n${results.numPassedTests} passed, ${failed} failed`);
  }
}

function print(line) {
  process.stdout.write(`${line}\n`);
}
