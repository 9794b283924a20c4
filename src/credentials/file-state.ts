import { stat } from 'node:fs/promises';
import type { Source } from './sources.ts';

/** The files among these sources, each once. */
export function filesOf(sources: readonly Source[]): string[] {
  return [...new Set(sources.flatMap((source) => ('file' in source ? source.file : [])))];
}

/** Differs whenever a file is exchanged or written, whatever links lead to it. */
export async function stateOf(files: readonly string[]): Promise<string> {
  const states = await Promise.all(
    files.map(async (file) => {
      const state = await stat(file, { bigint: true }).catch(() => undefined);
      return (
        state &&
        [state.dev, state.ino, state.mode, state.uid, state.size, state.mtimeNs, state.ctimeNs].join()
      );
    }),
  );
  return states.join(';');
}
