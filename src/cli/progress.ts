import { SingleBar } from 'cli-progress';
import { segmentSizes } from '../audit/segments/segment.ts';
import type { Output } from './io.ts';

const MIB = 1024 * 1024;
/** Uncompressed bytes before anything is shown, so that a short command shows nothing. */
const SILENT = 16 * MIB;

/** Shows on stderr how much of an audit log has been read, and about how long the rest takes, if that is a terminal. */
export class ReadProgress implements Disposable {
  readonly #bar: SingleBar;
  readonly #begun = performance.now();
  /** Sizes of the files that are read, in bytes; undefined: nothing is shown. */
  readonly #sizes: ReadonlyMap<string, number> | undefined;
  #total: number;
  #done = 0;
  #uncompressed = 0;

  private constructor(stream: Output, sizes: ReadonlyMap<string, number> | undefined) {
    this.#bar = new SingleBar({
      stream,
      format: '{percentage}% of {total} MiB read, about {left} left',
      clearOnComplete: true,
      // The library turns line wrapping off otherwise, and leaves it off after Ctrl-C.
      linewrap: true,
      // The library takes the first Ctrl-C for itself otherwise.
      gracefulExit: false,
    });
    this.#sizes = sizes;
    this.#total = [...(sizes?.values() ?? [])].reduce((sum, size) => sum + size, 0);
  }

  /**
   * Creates the progress of a command that reads the log of a replica, or of all; nothing is shown unless stderr is a
   * terminal.
   * @throws Error if a directory cannot be read
   */
  static async of(
    stderr: Output,
    directory: string,
    { replica, shown = true }: { readonly replica?: string | undefined; readonly shown?: boolean } = {},
  ): Promise<ReadProgress> {
    const isShown = shown && stderr.isTTY === true;
    return new ReadProgress(stderr, isShown ? await segmentSizes(directory, replica) : undefined);
  }

  /** Counts a block: its bytes, and how many bytes of the file it took. */
  add(bytes: number, stored: number): void {
    if (this.#sizes === undefined) return;
    this.#uncompressed += bytes;
    this.#done += stored;
    if (this.#uncompressed < SILENT) return;
    // The segment that a gateway writes to grows meanwhile.
    const total = Math.max(this.#total, this.#done);
    const read = Math.floor(this.#done / MIB);
    const payload = { left: this.#timeLeft(total) };
    if (this.#bar.isActive) this.#bar.update(read, payload);
    else this.#bar.start(Math.ceil(total / MIB), read, payload);
    this.#bar.setTotal(Math.ceil(total / MIB));
  }

  /** Takes a file that is not read from the total. */
  skip(file: string): void {
    this.#total -= this.#sizes?.get(file) ?? 0;
  }

  /** Removes the line from the terminal, before something else is printed. The next bytes show it again. */
  hide(): void {
    this.#bar.stop();
  }

  [Symbol.dispose](): void {
    this.hide();
  }

  /** The estimate of the library begins anew whenever the line is shown again, this one does not. */
  #timeLeft(total: number): string {
    const seconds = (performance.now() - this.#begun) / 1000;
    const left = this.#done === 0 ? 0 : (seconds * (total - this.#done)) / this.#done;
    if (left < 90) return `${Math.ceil(left)} s`;
    return left < 5_400 ? `${Math.ceil(left / 60)} min` : `${Math.ceil(left / 3_600)} h`;
  }
}
