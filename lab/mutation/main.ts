import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { PartialStrykerOptions } from '@stryker-mutator/api/core';
import { Stryker } from '@stryker-mutator/core';
import { Argument, Command } from 'commander';
import { folders, type MutatedFolder } from './folders.ts';

const REPORTS = 'mutation-report';

/** The least score, in percent: a lower one makes the exit status 1. */
const LEAST_SCORE = 85;

interface RunOptions {
  readonly again?: boolean;
  /** Patterns of files in the folders. */
  readonly files?: readonly string[];
  /** Patterns of test files in place of those of the folders. */
  readonly tests?: readonly string[];
}

function optionsFor(
  { name, leftOut = [], tests: all }: MutatedFolder,
  { again = false, files = ['**/*.ts'], tests = all }: RunOptions,
): PartialStrykerOptions {
  const report = `${REPORTS}/${name.replaceAll('/', '-')}`;
  return {
    mutate: [
      ...files.map((pattern) => `src/${name}/${pattern}`),
      ...leftOut.map((pattern) => `!src/${name}/${pattern}`),
    ],
    plugins: ['./lab/mutation/runner.ts'],
    testRunner: 'in-process',
    inProcess: tests,
    coverageAnalysis: 'perTest',
    concurrency: 1,
    // Modules that were loaded more than once stay in memory, and so does what failed tests left open.
    maxTestRunnerReuse: 50,
    // For endless loops that leave no timer a turn.
    timeoutMS: 10_000,
    // Node.js strips the types; nothing checks them in mutants.
    disableTypeChecks: false,
    ignorePatterns: ['/*', '!/src', '!/test', '/test/bench', '!/docs'],
    // What fewer tests do not notice is not remembered.
    incremental: tests === all,
    incrementalFile: `${report}.incremental.json`,
    force: again,
    reporters: ['clear-text', process.stdout.isTTY ? 'progress' : 'progress-append-only', 'json'],
    clearTextReporter: { reportTests: false, logTests: false, allowColor: false },
    jsonReporter: { fileName: `${report}.json` },
    thresholds: { high: 95, low: LEAST_SCORE, break: LEAST_SCORE },
  };
}

/** Inputs of chance that a test tries for a mutant. More find mutants in one run and not in the next. */
process.env['FUZZ_RUNS'] = '20';

async function run(names: readonly string[], options: RunOptions): Promise<void> {
  const chosen = names.length === 0 ? folders : folders.filter(({ name }) => names.includes(name));
  // Tests that fail do not tidy up.
  const temporary = mkdtempSync(join(tmpdir(), 'mutation-'));
  process.once('exit', () => rmSync(temporary, { recursive: true, force: true }));
  process.env['TMPDIR'] = temporary;
  for (const folder of chosen) await new Stryker(optionsFor(folder, options)).runMutationTest();
}

await new Command('mutation')
  .description('Changes the code in thousands of small ways and looks whether a test notices.')
  .addArgument(
    new Argument('[folders...]', 'folders of src to change; all if left out').choices(
      folders.map(({ name }) => name),
    ),
  )
  .option('--files <patterns...>', 'only these files of the folders, such as pool.ts or store/*.ts')
  .option('--tests <patterns...>', 'only these test files: soon done, and a lower bound of the score')
  .option('--again', 'also those that were run before, and whose code and tests are the same')
  .action(run)
  .parseAsync();
