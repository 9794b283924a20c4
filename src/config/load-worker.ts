import { parentPort, workerData } from 'node:worker_threads';
import type { FileTrust } from './include.ts';
import { ConfigError, type Issue, type LocatedIssue } from './issues.ts';
import { loadLocated } from './load.ts';
import { type Pieces, toPieces } from './transfer.ts';

/** Data of the thread. */
export interface LoadRequest {
  readonly file: string;
  readonly trust: FileTrust;
}

/** First message of the thread: the configuration or its issues. */
export type LoadResult =
  | { readonly pieces: Pieces; readonly warnings: readonly Issue[]; readonly fileState: string }
  | { readonly issues: readonly LocatedIssue[] };

// This module runs in the thread of load-background.ts.
try {
  const { file, trust }: LoadRequest = workerData;
  const { tree, locate, warnings, fileState } = await loadLocated(file, trust);
  const pieces = toPieces(tree);
  parentPort?.on('message', (issues: readonly Issue[]) => parentPort?.postMessage(issues.map(locate)));
  post(
    { pieces, warnings, fileState },
    pieces.map(({ buffer }) => buffer),
  );
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  post({ issues: error.issues }, []);
}

function post(result: LoadResult, transferred: ArrayBuffer[]): void {
  parentPort?.postMessage(result, transferred);
}
