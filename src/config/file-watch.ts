import { type StatsListener, unwatchFile, watchFile } from 'node:fs';

/**
 * Looks at files every `everyMs`, and calls back when one was changed or replaced. Looking works where events
 * do not: on network file systems, and where a link to the folder is replaced. Returns how to stop it.
 */
export function watchFiles(files: readonly string[], everyMs: number, onChange: () => void): () => void {
  const listener: StatsListener = (now, before) => {
    // ino: a file that was replaced by one of the same age and size.
    if (now.mtimeMs !== before.mtimeMs || now.ino !== before.ino || now.size !== before.size) onChange();
  };
  for (const file of files) watchFile(file, { interval: everyMs, persistent: false }, listener);
  return () => {
    for (const file of files) unwatchFile(file, listener);
  };
}
