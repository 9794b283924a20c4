import { on } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { AuditKeys } from '../keys.ts';
import type { Page, Position } from './newest-first.ts';
import type { Query } from './query.ts';
import type { IdentifierLists, Usage, UsageField } from './usage.ts';

/** The worker has the extension of this file: .ts in a checkout, .js in the package. */
const WORKER = new URL(`./search-worker${extname(import.meta.filename)}`, import.meta.url);
/** Memory of a thread for objects. Its buffers are outside, 6 MiB at most for each segment that is read. */
const LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 };

/** The log that is searched, and the criteria. */
export interface ThreadScope {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Of the keys of pseudonyms; undefined: values stay as they are. */
  readonly keysDirectory: string | undefined;
  /** Names of `audit.parameters`. */
  readonly parameters: readonly string[];
  readonly query: Query;
}

/** One page, the newest first; see `PageOptions`. */
export interface PageTask {
  readonly kind: 'page';
  readonly limit: number;
  readonly after: Position | undefined;
  readonly budgetMs: number;
}

/** Everything in order of time as text, up to `most` results and `timeMs` milliseconds. */
export interface ExportTask {
  readonly kind: 'export';
  readonly format: 'csv' | 'jsonl';
  readonly most: number;
  readonly timeMs: number;
}

/** The usage of the time range and replica of the query; see `countUsage`. */
export interface UsageTask {
  readonly kind: 'usage';
  readonly by: readonly UsageField[];
  readonly lists: IdentifierLists;
  readonly maxRows: number;
}

export type SearchTask = PageTask | ExportTask | UsageTask;

export interface ThreadUsage {
  readonly usage: Usage;
  /** Parts of the log that could not be read or trusted, and what it has no more or never had. */
  readonly notes: readonly string[];
  /** Those of them that are about what could not be read or trusted. */
  readonly errors: readonly string[];
}

export interface ThreadPage {
  readonly page: Page;
  /** Parts of the log that could not be read or trusted, and requests that may match. */
  readonly notes: readonly string[];
}

/** The result of each kind of task. That of an export is its text, which was sent piece by piece before. */
interface ThreadResults {
  readonly page: ThreadPage;
  readonly usage: ThreadUsage;
  readonly export: undefined;
}

/** A message of the thread. */
export type ThreadMessage =
  | { readonly text: string }
  | { readonly result: ThreadResults[keyof ThreadResults] };

/**
 * Searches, or counts usage, in a thread of its own, so that the process goes on serving. The thread has ended when this
 * settles.
 * @throws the reason of `signal`, which ends the thread; Error if the log cannot be read
 */
export async function searchInThread<Task extends PageTask | UsageTask>(
  scope: ThreadScope,
  task: Task,
  signal: AbortSignal,
): Promise<ThreadResults[Task['kind']]> {
  const { value } = await runInThread(scope, task, signal).next();
  return value as ThreadResults[Task['kind']];
}

/**
 * Does a task in a thread of its own: yields the text of an export, piece by piece, and returns the result. The thread
 * waits until the next piece is asked for. It has ended when this settles, or `return` has.
 * @throws the reason of `signal`, which ends the thread; Error if the log cannot be read
 */
export async function* runInThread(
  scope: ThreadScope,
  task: SearchTask,
  signal: AbortSignal,
): AsyncGenerator<string, unknown> {
  signal.throwIfAborted();
  const workerData = { scope, task };
  const worker = new Worker(WORKER, { workerData, resourceLimits: LIMITS, name: 'audit-search' });
  // Without a listener, an error after the last message would be uncaught.
  worker.on('error', () => undefined);
  try {
    for await (const [received] of on(worker, 'message', { signal, close: ['exit'] })) {
      const message = received as ThreadMessage;
      if ('result' in message) return message.result;
      yield message.text;
      worker.postMessage('next');
    }
    throw new Error('the search thread ended early');
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    await worker.terminate();
  }
}
