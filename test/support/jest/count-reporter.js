/** Prints the one line that CI reads, after everything else: `N passed, N failed`. */
export default class CountReporter {
  onRunComplete(_contexts, results) {
    // A suite that could not even load has no test to count, and must not look like a pass.
    const failed = results.numFailedTests + results.numRuntimeErrorTestSuites;
    process.stdout.write(`\n${results.numPassedTests} passed, ${failed} failed\n`);
  }
}
