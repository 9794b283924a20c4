import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Mutation } from '../simulation/mutations.ts';
import type { Failure } from './search.ts';
import { SharedInput } from './shared-input.ts';

/** A search of one target. */
export interface GuidedJob {
  readonly target: string;
  readonly seed: number;
  /** Inputs to begin with. */
  readonly corpus: readonly Uint8Array[];
  /** The most inputs that are made. */
  readonly runs: number;
  /** It ends after this time, in milliseconds. */
  readonly limitMs: number;
  /** Left out: the code as it is. */
  readonly mutation?: Mutation;
  /** The inputs of the result that are worth keeping have at most so many bytes; left out: none are chosen. */
  readonly mostKeptBytes?: number;
}

export interface GuidedFigures {
  /** Inputs that were checked, those of the corpus included. */
  readonly executions: number;
  /** Inputs that reached something new. */
  readonly kept: number;
  /** Statements, functions and branches; those that were reached; counts of a class that was new. */
  readonly counters: number;
  readonly reached: number;
  readonly features: number;
}

export interface GuidedResult {
  readonly figures: GuidedFigures;
  /** The first input with which a property does not hold, cut as short as it can be. The search ends with it. */
  readonly failure: Failure | undefined;
  readonly smallest: readonly Buffer[];
}

/** For the thread that searches. */
export interface GuidedWorkerData {
  readonly job: GuidedJob;
  /** See `SharedInput`. */
  readonly shared: SharedArrayBuffer;
  /** Where checks may write. */
  readonly folder: string;
}

export type GuidedMessage =
  | { readonly kind: 'progress'; readonly figures: GuidedFigures }
  | {
      readonly kind: 'end';
      readonly figures: GuidedFigures;
      readonly failure: { readonly input: Uint8Array; readonly what: string } | undefined;
      readonly smallest: readonly Uint8Array[] | undefined;
    };

/** A check that takes as long does not end. Checks take milliseconds. */
const HANG_MS = 15_000;
const WATCH_MS = 500;
/** The heap that a search may have. Inputs have a few kilobytes. */
const MOST_HEAP_MB = 768;
const LONGEST_INPUT = 64 * 1024;
const NO_FIGURES: GuidedFigures = { executions: 0, kept: 0, counters: 0, reached: 0, features: 0 };

/** Runs a search in a thread of its own. */
export async function runGuided(
  job: GuidedJob,
  progress: (figures: GuidedFigures) => void = () => undefined,
): Promise<GuidedResult> {
  const folder = await mkdtemp(join(tmpdir(), 'lab-guided-'));
  const shared = SharedInput.allocate(LONGEST_INPUT);
  const current = new SharedInput(shared);
  const worker = new Worker(new URL('program.ts', import.meta.url), {
    workerData: { job, shared, folder } satisfies GuidedWorkerData,
    resourceLimits: { maxOldGenerationSizeMb: MOST_HEAP_MB },
    execArgv: ['--disable-warning=ExperimentalWarning'],
  });
  const ended = once(worker, 'exit');
  let figures = NO_FIGURES;
  const watch = watchOf(current);
  try {
    const result = await new Promise<GuidedResult>((resolve, reject) => {
      worker.on('message', (message: GuidedMessage) => {
        ({ figures } = message);
        if (message.kind === 'progress') return progress(figures);
        const { failure, smallest = [] } = message;
        resolve({
          figures,
          failure: failure && { ...failure, input: Buffer.from(failure.input) },
          smallest: smallest.map((bytes) => Buffer.from(bytes)),
        });
      });
      const fail = (what: string): void => {
        const failure = { input: current.input, what };
        resolve({ figures: { ...figures, executions: current.count }, failure, smallest: [] });
      };
      worker.on('error', (error) => {
        // Before the first input, the test itself is wrong.
        if (current.count === 0) reject(error);
        else fail(`ends the process: ${String(error).slice(0, 200)}`);
      });
      void watch.hangs.then(() => fail('the check does not end'));
    });
    return result;
  } finally {
    watch.stop();
    await worker.terminate();
    await ended;
    await rm(folder, { recursive: true });
  }
}

/** Resolves `hangs` when the thread has checked the same input for too long, while this thread could run. */
function watchOf(current: SharedInput): { readonly hangs: Promise<void>; stop(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  let count = 0;
  let stoodStillMs = 0;
  const timer = setInterval(() => {
    stoodStillMs = current.count === count ? stoodStillMs + WATCH_MS : 0;
    ({ count } = current);
    if (stoodStillMs >= HANG_MS && count > 0) resolve();
  }, WATCH_MS);
  return { hangs: promise, stop: () => clearInterval(timer) };
}
