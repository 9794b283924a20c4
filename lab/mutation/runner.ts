import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import {
  INSTRUMENTER_CONSTANTS,
  type InstrumenterContext,
  type StrykerOptions,
} from '@stryker-mutator/api/core';
import { commonTokens, declareClassPlugin, PluginKind, tokens } from '@stryker-mutator/api/plugin';
import {
  type DryRunOptions,
  type DryRunResult,
  DryRunStatus,
  determineHitLimitReached,
  type MutantRunOptions,
  type MutantRunResult,
  type TestResult,
  type TestRunner,
  TestStatus,
  toMutantRunResult,
} from '@stryker-mutator/api/test-runner';
import { installLoader, nextVersion } from './loader.ts';
import { catchUncaught, TestFile, type TestOutcome } from './test-file.ts';

/** Written by the process of the first run for those that follow. */
const LIMITS = 'test-limits.json';
/** A test may take this time, and so many times what it took at first, until a mutant makes it hang. */
const LEAST_MS = 2_000;
const TIMES = 10;
/** The longest that a test may take at first. */
const AT_FIRST_MS = 60_000;

/** The switch of the mutants, which the mutated code reads. */
const context: InstrumenterContext = {};
Object.assign(globalThis, { [INSTRUMENTER_CONSTANTS.NAMESPACE]: context });

/**
 * Runs tests of jest in one process, which loads code and tests once for many mutants. With jest itself a mutant takes
 * seconds, since it loads every module for each test file of each run; here it takes milliseconds.
 */
class InProcessRunner implements TestRunner {
  static readonly inject = tokens(commonTokens.options);
  readonly #patterns: readonly string[];
  /** How long a test may take, in milliseconds. */
  #limits: Readonly<Record<string, number>> = {};
  #files: readonly TestFile[] | undefined;

  constructor(options: StrykerOptions) {
    this.#patterns = options['inProcess'] as readonly string[];
    installLoader();
    catchUncaught();
    if (existsSync(LIMITS)) this.#limits = JSON.parse(readFileSync(LIMITS, 'utf8'));
  }

  capabilities(): { reloadEnvironment: boolean } {
    return { reloadEnvironment: true };
  }

  async dryRun({ coverageAnalysis }: DryRunOptions): Promise<DryRunResult> {
    context.mutantCoverage = { static: {}, perTest: {} };
    const tests = await this.#run(undefined, false);
    const { mutantCoverage } = context;
    // With the limit of the first run, so that a machine that is busy only now shows in the limits of the mutants.
    const repeated = await this.#run(undefined, false);
    const limits: Record<string, number> = {};
    for (const { id, milliseconds } of [...tests, ...repeated])
      limits[id] = Math.max(limits[id] ?? 0, LEAST_MS + TIMES * milliseconds);
    this.#limits = limits;
    writeFileSync(LIMITS, JSON.stringify(limits));
    const again = repeated.find(({ failure }) => failure !== undefined);
    if (again !== undefined && tests.every(({ failure }) => failure === undefined)) {
      const errorMessage = `${again.id} passes only once in a process: ${again.failure}`;
      return { status: DryRunStatus.Error, errorMessage };
    }
    const result = { status: DryRunStatus.Complete, tests: tests.map(resultOf) } as const;
    return coverageAnalysis === 'off' ? result : { ...result, mutantCoverage };
  }

  async mutantRun(options: MutantRunOptions): Promise<MutantRunResult> {
    const { activeMutant, testFilter, hitLimit, disableBail, reloadEnvironment } = options;
    if (reloadEnvironment) {
      nextVersion();
      this.#files = undefined;
    }
    const chosen = testFilter === undefined ? undefined : new Set(testFilter);
    if (options.mutantActivation === 'runtime') {
      context.activeMutant = undefined as never;
      await this.#load();
    }
    context.activeMutant = activeMutant.id;
    context.hitLimit = hitLimit as number;
    context.hitCount = (hitLimit === undefined ? undefined : 0) as number;
    let tests: readonly TestOutcome[];
    try {
      tests = await this.#run(chosen, !disableBail);
    } catch (error) {
      // The tests could not be loaded, which no one would overlook.
      tests = [{ id: 'load', line: undefined, milliseconds: 0, failure: String(error) }];
    } finally {
      context.activeMutant = undefined as never;
    }
    if (!reloadEnvironment) await this.#checkWithoutMutant(tests);
    const endless = determineHitLimitReached(context.hitCount, context.hitLimit);
    const status = DryRunStatus.Complete as const;
    return toMutantRunResult(endless ?? { status, tests: tests.map(resultOf) }, disableBail);
  }

  /**
   * Runs the tests that failed once more, without a mutant.
   * @throws Error if one fails again, since an earlier mutant left something behind: a new process tests this one
   */
  async #checkWithoutMutant(tests: readonly TestOutcome[]): Promise<void> {
    const failed = new Set(tests.filter(({ failure }) => failure !== undefined).map(({ id }) => id));
    if (failed.size === 0) return;
    const { hitCount } = context;
    const again = await this.#run(failed, true);
    context.hitCount = hitCount as number;
    const broken = again.find(({ failure }) => failure !== undefined);
    if (broken !== undefined) throw new Error(`${broken.id} fails without a mutant: ${broken.failure}`);
  }

  async #load(): Promise<readonly TestFile[]> {
    if (this.#files !== undefined) return this.#files;
    const files: TestFile[] = [];
    for (const path of this.#patterns.flatMap((pattern) => globSync(pattern)).sort()) {
      files.push(await TestFile.load(resolve(path)));
    }
    this.#files = files;
    return files;
  }

  async #run(chosen: ReadonlySet<string> | undefined, stopsAtFailure: boolean): Promise<TestOutcome[]> {
    const outcomes: TestOutcome[] = [];
    const onTest = (id: string | undefined): void => {
      context.currentTestId = id as string;
    };
    const limitOf = (id: string): number => this.#limits[id] ?? AT_FIRST_MS;
    // The quick ones first: most mutants fail one of them.
    const files = [...(await this.#load())].sort((a, b) => this.#timeOf(a) - this.#timeOf(b));
    for (const file of files) {
      if (chosen !== undefined && !file.has(chosen)) continue;
      outcomes.push(...(await file.run({ chosen, stopsAtFailure, limitOf, onTest })));
      if (stopsAtFailure && outcomes.some(({ failure }) => failure !== undefined)) break;
    }
    return outcomes;
  }

  /** A measure of how long all tests of a file take, as far as it is known. */
  #timeOf({ path }: TestFile): number {
    const limits = Object.entries(this.#limits).filter(([id]) => id.startsWith(`${path} `));
    return limits.reduce((sum, [, limit]) => sum + limit - LEAST_MS, 0);
  }
}

function resultOf({ id, line, milliseconds, failure }: TestOutcome): TestResult {
  const [fileName = ''] = id.split(' ');
  const position = line === undefined ? {} : { startPosition: { line, column: 0 } };
  const base = { id, name: id.slice(fileName.length + 1), timeSpentMs: milliseconds, fileName, ...position };
  if (failure === undefined) return { ...base, status: TestStatus.Success };
  return { ...base, status: TestStatus.Failed, failureMessage: failure };
}

export const strykerPlugins = [declareClassPlugin(PluginKind.TestRunner, 'in-process', InProcessRunner)];

export const strykerValidationSchema = {
  properties: {
    inProcess: { description: 'Patterns of the test files.', type: 'array', items: { type: 'string' } },
  },
};
