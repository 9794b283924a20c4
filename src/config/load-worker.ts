import { parentPort, workerData } from 'node:worker_threads';
import { collectAll } from '../base/buffer-gc.ts';
import { effectiveYaml } from './effective.ts';
import type { FileTrust } from './include.ts';
import { ConfigError, type Issue, type LocatedIssue } from './issues.ts';
import { loadLocated, type ReadFiles } from './load.ts';
import { type Pieces, toPieces, treeOf } from './transfer.ts';

/** Data of the thread: a file to load, or a configuration to write with its defaults. */
export type LoadRequest = { readonly file: string; readonly trust: FileTrust } | { readonly shown: Pieces };

/** A configuration that was read, for processes and threads that do not have it. */
export interface LoadedConfig extends ReadFiles {
  readonly pieces: Pieces;
  readonly warnings: readonly Issue[];
}

/** First message of the thread that loads: the configuration or its issues. */
export type LoadResult = LoadedConfig | { readonly issues: readonly LocatedIssue[] };

// This module runs in the thread of load-background.ts.
const request: LoadRequest = workerData;
if ('shown' in request) parentPort?.postMessage(effectiveYaml(treeOf(request.shown)));
else await load(request.file, request.trust);

async function load(file: string, trust: FileTrust): Promise<void> {
  try {
    const { tree, locate, warnings, fileState, filesHash } = await loadLocated(file, trust);
    const pieces = toPieces(tree);
    // This thread stays while the process builds the next configuration, since it knows the places of issues.
    collectAll();
    parentPort?.on('message', (issues: readonly Issue[]) => parentPort?.postMessage(issues.map(locate)));
    post(
      { pieces, warnings, fileState, filesHash },
      pieces.map(({ buffer }) => buffer),
    );
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    post({ issues: error.issues }, []);
  }
}

function post(result: LoadResult, transferred: ArrayBuffer[]): void {
  parentPort?.postMessage(result, transferred);
}
