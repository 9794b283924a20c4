import { appendFileSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { ModernFakeTimers } from '@jest/fake-timers';
import { ModuleMocker } from 'jest-mock';

const TICK_MS = 50;
/** Less than any timeout that a test waits for, and many times what a busy machine needs to change programs. */
const STANDSTILL_MS = 100;
/** Short waits for a processor within this time (ms) make a timeout end as a long one does. */
const WINDOW_MS = 4 * TICK_MS;
const NS_PER_MS = 1_000_000;

/**
 * Lets a failed test run again if the machine stood still while it ran, at once or in parts: some tests need timeouts of
 * half a second to see them end, and after a standstill everything that was under way is too late. Any other failure is
 * final. A test that needs a package which this machine lacks counts as not run, and the end of the run lists it; with CI
 * set it fails.
 */
export default class Environment {
  global = globalThis;
  fakeTimers = null;
  moduleMocker = new ModuleMocker(globalThis);
  fakeTimersModern;
  #ticks;
  #lastAt = 0;
  #cpu = process.cpuUsage();
  #longestMs = 0;
  #waitedMs = waitedMs();
  /** The waits for a processor that ended within the window. */
  #waits = [];
  #file;
  // Jest puts others in their place for each file.
  #exit = process.exit;
  #getBuiltinModule = process.getBuiltinModule;

  constructor(config, context) {
    this.fakeTimersModern = new ModernFakeTimers({ config: config.projectConfig, global: globalThis });
    this.#file = relative(config.globalConfig.rootDir, context.testPath);
  }

  getVmContext() {
    return null;
  }

  async setup() {
    // Jest sets 100, which makes the errors of the program slower than they are in its own processes.
    Error.stackTraceLimit = 10;
    this.#ticks = setInterval(() => this.#measure(), TICK_MS).unref();
  }

  async teardown() {
    clearInterval(this.#ticks);
    this.fakeTimersModern.dispose();
    [process.exit, process.getBuiltinModule] = [this.#exit, this.#getBuiltinModule];
  }

  handleTestEvent({ name, test }, state) {
    if (name === 'run_finish') {
      if (process.env.CI === undefined) notRun(state.rootDescribeBlock, this.#file);
    } else if (name === 'test_start') {
      this.#measure();
      this.#longestMs = 0;
      this.#waits = [];
    } else if (name === 'test_done') {
      // After a standstill, timers of the test may be called before the tick.
      this.#measure();
    } else if (name === 'test_retry') {
      this.#decide(test);
    }
  }

  /** Jest calls the test again in either case: after a final failure it only throws its error again. */
  #decide(test) {
    const [error] = [test.retryReasons.at(-1)].flat();
    // A counterexample of fast-check stays one, however long the machine stood still.
    const isCounterexample = String(error?.message).startsWith('Property failed');
    if (this.#longestMs >= STANDSTILL_MS && !isCounterexample) {
      const ms = this.#longestMs.toFixed(0);
      process.stdout.write(`"${test.name}" failed and runs again: the machine stood still for ${ms} ms\n`);
      return;
    }
    test.retryReasons.pop();
    test.fn = () => {
      throw error;
    };
  }

  /** Notes the time in which this process had no processor. Its own work does not count. */
  #measure() {
    const [now, cpu] = [performance.now(), process.cpuUsage()];
    const workedMs = (cpu.user + cpu.system - this.#cpu.user - this.#cpu.system) / 1000;
    this.#longestMs = Math.max(this.#longestMs, now - this.#lastAt - TICK_MS - workedMs);
    [this.#lastAt, this.#cpu] = [now, cpu];
    const waited = waitedMs();
    this.#waits = this.#waits.filter(({ at }) => now - at < WINDOW_MS);
    this.#waits.push({ at: now, ms: waited - this.#waitedMs });
    this.#waitedMs = waited;
    const together = this.#waits.reduce((sum, { ms }) => sum + ms, 0);
    this.#longestMs = Math.max(this.#longestMs, together);
  }
}

/** How long the main thread was ready to run and had no processor so far, where the system counts it (Linux). */
function waitedMs() {
  try {
    const [, waitedNs] = readFileSync('/proc/self/schedstat', 'latin1').split(' ');
    return Number(waitedNs) / NS_PER_MS;
  } catch {
    // The gaps between the ticks are what is left to go by.
    return 0;
  }
}

/** Marks the tests of a block that lack a package as skipped, and notes them for the reporter. */
function notRun(block, file) {
  for (const child of block.children) {
    if (child.type === 'describeBlock') {
      notRun(child, file);
      continue;
    }
    const missing = child.errors.map((error) => [error].flat()[0]).find(isMissingPackage);
    if (missing === undefined) continue;
    child.errors = [];
    child.status = 'skip';
    appendFileSync(process.env.TESTS_NOT_RUN, `${file}: ${missing.message}\n`);
  }
}

function isMissingPackage(error) {
  return error?.name === 'MissingPackageError';
}
