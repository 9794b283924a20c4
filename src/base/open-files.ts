import { readdirSync, readFileSync } from 'node:fs';
import { ignoreSystemError } from './expected-errors.ts';

/** Returns how many files this process may open: Node.js has raised it to the hard limit. Infinity: not known. */
export function maxOpenFiles(): number {
  try {
    const [, limit = Number.POSITIVE_INFINITY] =
      /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return Number(limit);
  } catch (error) {
    // Not Linux.
    ignoreSystemError(error);
    return Number.POSITIVE_INFINITY;
  }
}

/** Returns how many files this process has open, of `max`: on Linux only. */
export function openFiles(max: number): number {
  try {
    // One of them was this folder.
    return readdirSync('/proc/self/fd').length - 1;
  } catch (error) {
    // No file is left to read the folder with.
    ignoreSystemError(error);
    return max;
  }
}
