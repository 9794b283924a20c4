import { parentPort, workerData } from 'node:worker_threads';
import { mutate } from '../simulation/hooks.ts';
import { Random } from '../simulation/random.ts';
import { Coverage } from './coverage.ts';
import type { GuidedMessage, GuidedWorkerData } from './run.ts';
import { type Check, type Failure, Search } from './search.ts';
import { SharedInput } from './shared-input.ts';
import { targets } from './targets.ts';

/*
 * Searches one target in a thread of its own, so that an input whose check does not end, or fills the memory, is seen
 * from outside, and a mutation can change the code.
 */

const PROGRESS_MS = 500;

// Most inputs end in an error that a parser catches, and the stack is what it costs.
Error.stackTraceLimit = 4;

const { job, shared, folder }: GuidedWorkerData = workerData;
const { target: name, mutation, seed, runs, limitMs, mostKeptBytes } = job;
const target = targets.find((each) => each.name === name);
if (target === undefined) throw new RangeError(`no target ${name}`);

if (mutation !== undefined) mutate(mutation);
const coverage = new Coverage(target.counted);
// The code under test must be loaded after the hooks are in place.
const { check }: { readonly check: Check } = await import(`./${name}.ts`);
const input = new SharedInput(shared);
// Schemas and other things that are made once are made before anything is measured.
await (async () => check(Buffer.alloc(0), folder))().catch(() => undefined);
coverage.begin();

const search = new Search({
  check,
  coverage,
  folder,
  random: new Random(`${name} ${seed}`),
  longest: target.longest,
  onInput: (bytes) => input.set(bytes),
});

function post(message: GuidedMessage): void {
  parentPort?.postMessage(message);
}

function figures() {
  return { executions: search.executions, kept: search.kept.length, ...coverage.reached };
}

async function firstFailure(): Promise<Failure | undefined> {
  const begun = performance.now();
  let told = begun;
  for (const bytes of job.corpus) {
    const failure = await search.tryInput(Buffer.from(bytes));
    if (failure !== undefined) return failure;
  }
  const fromCorpus = search.executions;
  while (search.executions < fromCorpus + runs) {
    const now = performance.now();
    if (now - begun > limitMs) break;
    if (now - told > PROGRESS_MS) {
      told = now;
      post({ kind: 'progress', figures: figures() });
    }
    const failure = await search.tryNext();
    if (failure !== undefined) return failure;
  }
  return undefined;
}

const failure = await firstFailure();
const counted = figures();
const shortest = failure === undefined ? undefined : await search.shorten(failure);
const smallest = mostKeptBytes === undefined ? undefined : await search.smallest(mostKeptBytes);
post({ kind: 'end', figures: counted, failure: shortest, smallest });
