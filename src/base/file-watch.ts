import { stat } from 'node:fs/promises';
import { reportError } from './report-error.ts';

const INTERVAL_MS = 1_000;
/** How long a changed file has to stay as it is before it is read, in milliseconds: it may be half-written. */
const SETTLED_MS = 100;

/** Differs whenever one of the files is replaced or written, whatever links lead to it. */
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

/**
 * Reads files again when they changed, and once at the beginning. It polls the state of each file, since events miss
 * links that are exchanged on the way to a file, and writes by others to a network mount.
 */
export class FileWatch {
  readonly #files: readonly string[];
  readonly #read: () => Promise<boolean>;
  readonly #intervalMs: number;
  /** The state of the files at the last poll, and when they were last read. */
  #seen: string | undefined;
  #done: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> = Promise.resolve();
  #closed = false;

  /** `read` resolves to whether the files could be used; otherwise it is called again, until they can. */
  constructor(files: readonly string[], read: () => Promise<boolean>, intervalMs = INTERVAL_MS) {
    this.#files = files;
    this.#read = read;
    this.#intervalMs = intervalMs;
    this.#plan(0);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Resolves when nothing is being read any more. */
  close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    return this.#polling;
  }

  #plan(ms: number): void {
    if (this.#closed || this.#files.length === 0) return;
    this.#timer = setTimeout(() => {
      this.#polling = this.#poll()
        .catch((error) => {
          reportError(error);
          return this.#intervalMs;
        })
        .then((next) => this.#plan(next));
    }, ms);
  }

  /** Resolves to the milliseconds until the next poll. */
  async #poll(): Promise<number> {
    const state = await stateOf(this.#files);
    const settled = state === this.#seen;
    this.#seen = state;
    if (state === this.#done) return this.#intervalMs;
    if (!settled) return Math.min(SETTLED_MS, this.#intervalMs);
    // A file that changes while it is read has another state at the next poll.
    if (await this.#read()) this.#done = state;
    return this.#intervalMs;
  }
}
