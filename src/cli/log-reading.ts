import { findingText, type PlacedFinding } from '../audit/findings.ts';
import type { Query } from '../audit/reader/query.ts';
import { BufferGc } from '../base/buffer-gc.ts';
import { type Io, note } from './io.ts';
import { ReadProgress } from './progress.ts';

interface Part {
  readonly replica?: string | undefined;
  readonly since?: string | undefined;
  readonly until?: string | undefined;
}

/** Returns the query for a part of the log. */
export function partOf({ replica, since, until }: Part): Query {
  return {
    ...(replica !== undefined && { replica }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  };
}

/** A command's reading of an audit log: its progress on a terminal, and notes of what is wrong in the log. */
export class LogReading implements Disposable {
  readonly #io: Io;
  readonly #gc = new BufferGc();
  readonly progress: ReadProgress;
  /** True: a part of the log could not be read or trusted. */
  isIncomplete = false;

  private constructor(io: Io, progress: ReadProgress) {
    this.#io = io;
    this.progress = progress;
  }

  /**
   * Begins to read the log of a replica, or of all. `shown`: false if the progress is not to be shown.
   * @throws Error if a directory cannot be read
   */
  static async of(
    io: Io,
    directory: string,
    options: { readonly replica?: string | undefined; readonly shown?: boolean } = {},
  ): Promise<LogReading> {
    return new LogReading(io, await ReadProgress.of(io.stderr, directory, options));
  }

  /** Options of the readers of the log. */
  get options() {
    return {
      onBytes: (count: number, stored: number): void => {
        this.#gc.add(count);
        this.progress.add(count, stored);
      },
      onSkipped: (file: string): void => this.progress.skip(file),
      onUnreadable: (finding: PlacedFinding): void => {
        this.isIncomplete = true;
        this.#note(finding);
      },
      onNote: (finding: PlacedFinding): void => this.#note(finding),
    };
  }

  [Symbol.dispose](): void {
    this.progress.hide();
  }

  #note(finding: PlacedFinding): void {
    this.progress.hide();
    note(this.#io, findingText(finding));
  }
}
