import { parentPort, workerData } from 'node:worker_threads';
import { ConfigError, type Fault, type Finding } from './faults.ts';
import { loadLocated } from './load.ts';
import { type Pieces, toPieces } from './pieces.ts';

/** First message of the thread: the configuration or its issues. */
export type LoadAnswer = { readonly pieces: Pieces } | { readonly faults: readonly Fault[] };

// This module runs in the thread of load-background.ts.
try {
  const { tree, faultAt } = await loadLocated(String(workerData));
  const pieces = toPieces(tree);
  parentPort?.on('message', (findings: readonly Finding[]) => parentPort?.postMessage(findings.map(faultAt)));
  tell(
    { pieces },
    pieces.map(({ buffer }) => buffer),
  );
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  tell({ faults: error.faults }, []);
}

function tell(answer: LoadAnswer, transferred: ArrayBuffer[]): void {
  parentPort?.postMessage(answer, transferred);
}
