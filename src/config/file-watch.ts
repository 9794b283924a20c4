import { type StatsListener, unwatchFile, watchFile } from 'node:fs';

/**
 * Looks at files every `everyMs`, and calls back when one was changed or replaced. Looking works where events
 * do not: on network file systems, and where a link to the folder is replaced. Returns how to stop it.
 */
export function watchFiles(files: readonly string[], everyMs: number, onChange: () => void): () => void {
  const listener: StatsListener = (now, before) => {
    // ctime: a mode or an owner that was mended. ino: a file that was replaced by one of the same age.
    if (now.ctimeMs !== before.ctimeMs || now.ino !== before.ino) onChange();
  };
  for (const file of files) watchFile(file, { interval: everyMs, persistent: false }, listener);
  return () => {
    for (const file of files) unwatchFile(file, listener);
  };
}
