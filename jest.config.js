import { join } from 'node:path';

// The gateways that tests start compile their modules once, not in each process.
process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, 'node_modules/.cache/node');

// The processes of the tests inherit these. With a larger young generation, and no threads that help to collect it, they
// need 7 % less processor time.
process.execArgv.push('--min-semi-space-size=16', '--max-semi-space-size=32', '--single-threaded-gc');

/** @type {import('jest').Config} */
export default {
  testEnvironment: '<rootDir>/test/support/jest/environment.js',
  runtime: '<rootDir>/test/support/jest/runtime.js',
  testMatch: ['<rootDir>/{test,lab}/**/*.test.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  // Tests wait for servers half of the time, so that this is right for two processors.
  maxWorkers: 6,
  // A worker keeps what the tests of a file loaded. With two gigabytes it spends most of its time collecting garbage.
  workerIdleMemoryLimit: '400MB',
  // A process that is busy, or compiles what it loaded, ends late. After this time it holds something that a test left open.
  workerGracefulExitTimeout: 5_000,
  testSequencer: '<rootDir>/test/support/jest/sequencer.js',
  // Ends what hangs. A busy machine may need long for what is right.
  testTimeout: 300_000,
  globalSetup: '<rootDir>/test/support/jest/global-setup.js',
  setupFilesAfterEnv: ['<rootDir>/test/support/jest/retries.js', '<rootDir>/test/support/jest/closing.js'],
  // What streams of Node.js have to do next, such as those of tests before, must not be counted as timers of a test.
  fakeTimers: { doNotFake: ['nextTick'] },
  setupFiles: ['<rootDir>/test/support/jest/umask.js'],
  transform: {},
  // The build's output holds a second copy of package names and modules.
  modulePathIgnorePatterns: ['<rootDir>/dist/'],
  reporters: ['default', 'summary', '<rootDir>/test/support/jest/count-reporter.js'],
};
