import { pathToFileURL } from 'node:url';
import { addEventHandler, getState, resetState, run, type State, setState } from 'jest-circus';

type Block = State['rootDescribeBlock'];
type Test = Block['tests'][number];

export interface TestCase {
  /** File and names of a test. */
  readonly id: string;
  /** From 0 on; undefined: unknown. */
  readonly line: number | undefined;
}

export interface TestOutcome extends TestCase {
  readonly milliseconds: number;
  /** Undefined: it passed. */
  readonly failure: string | undefined;
}

export interface RunOptions {
  /** Undefined: all. */
  readonly chosen: ReadonlySet<string> | undefined;
  /** True: no test runs after one that failed. */
  readonly stopsAtFailure: boolean;
  /** How long a test may take, in milliseconds: with many mutants it would hang. */
  readonly limitOf: (id: string) => number;
  /** Called before each test, and with undefined after it. */
  readonly onTest: (id: string | undefined) => void;
}

let stops = false;
let onTest: RunOptions['onTest'] = () => undefined;
const NONE = /(?!)/;
const idOf = new WeakMap<Test, string>();

addEventHandler((event, state) => {
  if (event.name === 'test_started') onTest(idOf.get(event.test));
  if (event.name !== 'test_done') return;
  onTest(undefined);
  if (stops && event.test.errors.length > 0) state.testNamePattern = NONE;
});

function onUncaught(error: unknown): void {
  getState().currentlyRunningTest?.errors.push([error, error]);
}

/** From now on, an error that nothing catches fails the test during which it occurs. */
export function catchUncaught(): void {
  process.on('uncaughtException', onUncaught);
  process.on('unhandledRejection', onUncaught);
}

/** One test file, with the tests that it has defined. */
export class TestFile {
  readonly #state: State;
  readonly #tests: readonly Test[];
  readonly path: string;

  private constructor(path: string, state: State) {
    this.path = path;
    this.#state = state;
    this.#tests = testsOf(state.rootDescribeBlock);
    for (const test of this.#tests) idOf.set(test, `${path} ${namesOf(test)}`);
  }

  /**
   * Loads a file of the working folder.
   * @throws whatever its modules throw
   */
  static async load(path: string): Promise<TestFile> {
    resetState();
    await import(pathToFileURL(path).href);
    const state = getState();
    if (state.unhandledErrors.length > 0) throw new Error(String(state.unhandledErrors));
    return new TestFile(path, state);
  }

  has(chosen: ReadonlySet<string>): boolean {
    return this.#tests.some((test) => chosen.has(idOf.get(test) ?? ''));
  }

  /** Runs the chosen tests; returns those that ran. */
  async run({ chosen, stopsAtFailure, limitOf, onTest: listener }: RunOptions): Promise<TestOutcome[]> {
    const state = setState(this.#state);
    stops = stopsAtFailure;
    onTest = listener;
    state.testNamePattern = null;
    state.unhandledErrors = [];
    // A hook may take as long as the slowest test.
    state.testTimeout = 0;
    for (const test of this.#tests) {
      Object.assign(test, { errors: [], retryReasons: [], status: null, duration: null, startedAt: null });
      const id = idOf.get(test) ?? '';
      test.mode = chosen === undefined || chosen.has(id) ? undefined : 'skip';
      test.timeout = limitOf(id);
      state.testTimeout = Math.max(state.testTimeout, limitOf(id));
    }
    await run();
    const outcomes = this.#tests
      .filter(({ status }) => status === 'done')
      .map((test) => this.#outcomeOf(test));
    const [first] = outcomes;
    if (first === undefined || state.unhandledErrors.length === 0) return outcomes;
    // A hook for all tests failed.
    return [{ ...first, failure: String(state.unhandledErrors) }, ...outcomes.slice(1)];
  }

  #outcomeOf(test: Test): TestOutcome {
    const [error] = test.errors.flat();
    return {
      id: idOf.get(test) ?? '',
      line: this.#lineOf(test),
      milliseconds: test.duration ?? 0,
      // A test can fail with any value, also with undefined.
      failure: test.errors.length === 0 ? undefined : String(error?.message ?? error),
    };
  }

  #lineOf({ asyncError }: Test): number | undefined {
    const [, after = ''] = (asyncError.stack ?? '').split(this.path);
    const [, line] = /^(?:\?v=\d+)?:(\d+):/.exec(after) ?? [];
    return line === undefined ? undefined : Number(line) - 1;
  }
}

function testsOf(block: Block): Test[] {
  return block.children.flatMap((child) => (child.type === 'test' ? [child] : testsOf(child)));
}

function namesOf(test: Test): string {
  const names: string[] = [test.name];
  for (let block: Block | undefined = test.parent; block?.parent !== undefined; block = block.parent) {
    names.unshift(block.name);
  }
  return names.join(' > ');
}
