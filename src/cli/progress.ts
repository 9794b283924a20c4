const MIB = 1024 * 1024;

/** Shows the number of bytes read, if stderr is a terminal. */
export function showProgress(): { add: (bytes: number) => void; end: () => void } {
  if (!process.stderr.isTTY) return { add: () => undefined, end: () => undefined };
  let bytes = 0;
  let shown = 0;
  return {
    add: (count) => {
      bytes += count;
      if (bytes - shown < 16 * MIB) return;
      shown = bytes;
      process.stderr.write(`\r${Math.floor(bytes / MIB)} MiB read`);
    },
    end: () => void (shown > 0 && process.stderr.write('\r\u001b[K')),
  };
}
