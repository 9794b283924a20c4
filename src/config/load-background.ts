import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { runInSlices } from '../base/steps.ts';
import type { FileTrust } from './include.ts';
import { ConfigError, type Issue, type LocatedIssue } from './issues.ts';
import type { LoadedConfig, LoadRequest, LoadResult } from './load-worker.ts';
import type { Config } from './schema.ts';
import { fromPieces, type Pieces } from './transfer.ts';

/** The worker has the extension of this file: .ts in a checkout, .js in the package. */
const WORKER = new URL(`./load-worker${extname(import.meta.filename)}`, import.meta.url);

/** A configuration that a worker thread has read. */
export interface BackgroundConfig extends LoadedConfig {
  readonly config: Config;
  /** Adds the places in the file to further issues. Must not be called again before it has resolved. */
  locate(issues: readonly Issue[]): Promise<readonly LocatedIssue[]>;
  /** Ends the worker thread, which holds the source positions. */
  close(): Promise<void>;
}

/**
 * Does the same as `loadLocated` in a process that serves: a worker thread reads and checks the file, and
 * the configuration is assembled in slices, so that the event loop is not blocked.
 * @throws ConfigError with every issue, or if the file cannot be read
 */
export async function loadInBackground(file: string, trust: FileTrust): Promise<BackgroundConfig> {
  const workerData: LoadRequest = { file, trust };
  const worker = new Worker(WORKER, { workerData });
  try {
    // Rejects if an error ends the thread.
    const [result] = (await once(worker, 'message')) as [LoadResult];
    if ('issues' in result) throw new ConfigError(result.issues);
    const config = await runInSlices(fromPieces(result.pieces, file));
    return {
      config,
      ...result,
      async locate(issues) {
        if (issues.length === 0) return [];
        worker.postMessage(issues);
        const [located] = (await once(worker, 'message')) as [readonly LocatedIssue[]];
        return located;
      },
      close: async () => void (await worker.terminate()),
    };
  } catch (error) {
    await worker.terminate();
    throw error;
  }
}

/** Writes a configuration as `effectiveYaml` does, in a thread: that of thousands of deployments takes seconds. */
export async function effectiveInBackground(pieces: Pieces): Promise<string> {
  const workerData: LoadRequest = { shown: pieces };
  const worker = new Worker(WORKER, { workerData });
  // Rejects if an error ends the thread.
  const [yaml] = (await once(worker, 'message')) as [string];
  return yaml;
}
