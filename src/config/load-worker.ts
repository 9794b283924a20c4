import { parentPort, workerData } from 'node:worker_threads';
import { ConfigError, type Issue, type LocatedIssue } from './issues.ts';
import { loadLocated } from './load.ts';
import { type Pieces, toPieces } from './transfer.ts';

/** First message of the thread: the configuration or its issues. */
export type LoadResult = { readonly pieces: Pieces } | { readonly issues: readonly LocatedIssue[] };

// This module runs in the thread of load-background.ts.
try {
  const { tree, locate } = await loadLocated(String(workerData));
  const pieces = toPieces(tree);
  parentPort?.on('message', (issues: readonly Issue[]) => parentPort?.postMessage(issues.map(locate)));
  post(
    { pieces },
    pieces.map(({ buffer }) => buffer),
  );
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  post({ issues: error.issues }, []);
}

function post(result: LoadResult, transferred: ArrayBuffer[]): void {
  parentPort?.postMessage(result, transferred);
}
