import type { Log } from '../../base/log.ts';
import type { RetiredEnd } from './admin-records.ts';
import { type Archive, compressClosed, nextToRetire, type Retired, remove } from './archive.ts';
import { indexClosed } from './time-index.ts';

/** Between two looks at what is old enough to go, in milliseconds. */
const EVERY_MS = 3_600_000;

export interface UpkeepOptions {
  readonly archive: Archive;
  /** How long closed segments stay, in milliseconds. */
  readonly keep: number;
  readonly log: Log;
  /** Up to where records were removed so far. */
  readonly retired: () => RetiredEnd | undefined;
  /** Records that a segment is about to be removed; resolves to whether that is written. */
  readonly onRetire: (retired: Retired) => Promise<boolean>;
  readonly onFailure: () => void;
}

/** Compresses and indexes closed segments and removes old ones, one at a time, and never in the way of anything. */
export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #timer: NodeJS.Timeout;
  /** Segments that were told to be changed. */
  readonly #told = new Set<string>();
  #work: Promise<void> = Promise.resolve();

  constructor(options: UpkeepOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.begin(), EVERY_MS).unref();
  }

  /** Looks now, or once it is done with what it does. */
  begin(): void {
    const { log, onFailure } = this.#options;
    this.#work = this.#work
      .then(() => this.#run())
      .catch((error: Error) => {
        onFailure();
        log.warn({ reason: error.message }, 'closed segments of the audit log stay as they are');
      });
  }

  /** Resolves when nothing is under way. */
  get idle(): Promise<void> {
    return this.#work;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #run(): Promise<void> {
    const { archive, keep, retired: end, log, onRetire } = this.#options;
    for (const segment of await compressClosed(archive)) {
      if (this.#told.has(segment)) continue;
      this.#told.add(segment);
      log.error({ segment }, 'a closed segment of the audit log was changed: run audit verify');
    }
    for (;;) {
      const due = await nextToRetire(archive, Date.now() - keep, end());
      // Where the chain begins afterwards has to be in the log before: otherwise it looks like tampering.
      if (due === undefined || !(due.recorded || (await onRetire(due.retired)))) break;
      await remove(archive.folder, due.retired);
    }
    await indexClosed(archive.folder, archive.keys);
  }
}
