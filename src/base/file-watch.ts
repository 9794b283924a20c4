import { stat } from 'node:fs/promises';
import { inTime } from './clock.ts';
import { ignoreSystemError } from './expected-errors.ts';
import { reportError } from './report-error.ts';

const INTERVAL_MS = 1_000;
/**
 * Time that a changed file must stay unchanged before it is read, in milliseconds: it may be half-written.
 */
const SETTLED_MS = 100;
/** Maximum number of polls between two reads of files that are not usable and do not change. */
const MOST_PAUSES = 59;
/** Maximum wait for a poll at the end, in milliseconds: where a mount hangs, it never ends. */
const CLOSE_MS = 2_000;

/** Returns a text that changes when one of the files is replaced or written, also through links. */
export async function stateOf(files: readonly string[]): Promise<string> {
  const states: (string | undefined)[] = [];
  // One after the other: where a mount hangs, each would keep a thread of the pool, which the audit log needs, too.
  for (const file of files) {
    const state = await stat(file, { bigint: true }).catch(ignoreSystemError);
    states.push(
      state && [state.dev, state.ino, state.mode, state.uid, state.size, state.mtimeNs, state.ctimeNs].join(),
    );
  }
  return states.join(';');
}

/**
 * Reads files when they have changed, and once at the beginning. It polls the state of each file, because
 * file events miss replaced links in a path, and writes of other hosts to a network mount.
 */
export class FileWatch {
  readonly #files: () => Promise<readonly string[]>;
  readonly #read: () => Promise<boolean>;
  readonly #intervalMs: number;
  /** State of the files at the last poll, and at the last read if that was successful. */
  #seen: string | undefined;
  #done: string | undefined;
  /** Polls until unusable files are read again, and how many there will be after that read. */
  #pausesLeft = 0;
  #nextPauses = 0;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> = Promise.resolve();
  #closed = false;
  readonly #firstRead = Promise.withResolvers<void>();

  /**
   * `files`: their names, or what finds them at each poll. `read` resolves to true if the files are usable. Otherwise
   * it is called again, when they change and ever less often meanwhile, until they are.
   */
  constructor(
    files: readonly string[] | (() => Promise<readonly string[]>),
    read: () => Promise<boolean>,
    intervalMs = INTERVAL_MS,
  ) {
    this.#files = typeof files === 'function' ? files : async () => files;
    this.#read = read;
    this.#intervalMs = intervalMs;
    if (files.length === 0 && typeof files !== 'function') this.#firstRead.resolve();
    else this.#plan(0);
  }

  /** Resolves when the files were read for the first time, usable or not, or will not be. */
  get firstRead(): Promise<void> {
    return this.#firstRead.promise;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Resolves when no read is pending, or one hangs. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#firstRead.resolve();
    await inTime(this.#polling, CLOSE_MS);
  }

  #plan(ms: number): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#polling = this.#poll()
        .catch((error) => {
          reportError(error);
          return this.#intervalMs;
        })
        .then((next) => this.#plan(next));
    }, ms);
  }

  /** Resolves to the time until the next poll, in milliseconds. */
  async #poll(): Promise<number> {
    const state = await stateOf(await this.#files());
    const settled = state === this.#seen;
    this.#seen = state;
    if (state === this.#done) return this.#intervalMs;
    if (!settled) {
      this.#pausesLeft = this.#nextPauses = 0;
      return Math.min(SETTLED_MS, this.#intervalMs);
    }
    if (this.#pausesLeft > 0) {
      this.#pausesLeft -= 1;
      return this.#intervalMs;
    }
    // A file that changes during the read has another state at the next poll.
    this.#done = undefined;
    try {
      // Files that are put back after an unusable change are read again, so that no error stays.
      if (await this.#read()) this.#done = state;
    } finally {
      this.#firstRead.resolve();
    }
    this.#pausesLeft = this.#nextPauses;
    this.#nextPauses = Math.min(2 * this.#nextPauses + 1, MOST_PAUSES);
    return this.#intervalMs;
  }
}
