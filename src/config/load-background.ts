import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { runInSlices } from '../base/steps.ts';
import { ConfigError, type Fault, type Finding } from './faults.ts';
import type { LoadAnswer } from './load-worker.ts';
import { fromPieces } from './pieces.ts';
import type { Config } from './schema.ts';

/** Beside this file, in a checkout and in the package. */
const WORKER = new URL(`./load-worker${extname(import.meta.filename)}`, import.meta.url);

export interface BackgroundConfig {
  readonly config: Config;
  faultsAt(findings: readonly Finding[]): Promise<readonly Fault[]>;
  /** Ends the worker thread, which holds the source positions. */
  close(): Promise<void>;
}

/**
 * Does the same as `loadLocated` in a process that serves: a worker thread reads and checks the file, and
 * the configuration is assembled in slices, so that the event loop is not blocked.
 * @throws ConfigError
 */
export async function loadInBackground(file: string): Promise<BackgroundConfig> {
  const worker = new Worker(WORKER, { workerData: file });
  try {
    // Rejects if an error ends the thread.
    const [answer] = (await once(worker, 'message')) as [LoadAnswer];
    if ('faults' in answer) throw new ConfigError(answer.faults);
    const config = await runInSlices(fromPieces(answer.pieces, file));
    return {
      config,
      async faultsAt(findings) {
        if (findings.length === 0) return [];
        worker.postMessage(findings);
        const [faults] = (await once(worker, 'message')) as [readonly Fault[]];
        return faults;
      },
      close: async () => void (await worker.terminate()),
    };
  } catch (error) {
    await worker.terminate();
    throw error;
  }
}
