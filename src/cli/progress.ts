import { SingleBar } from 'cli-progress';

const MIB = 1024 * 1024;
/** Bytes before anything is shown, so that a short command shows nothing. */
const SILENT = 16 * MIB;

/** Shows the number of bytes read on stderr, if that is a terminal. */
export class ReadProgress implements Disposable {
  readonly #bar = new SingleBar({
    stream: process.stderr,
    format: '{value} MiB read',
    clearOnComplete: true,
    // The library turns line wrapping off otherwise, and leaves it off after Ctrl-C.
    linewrap: true,
  });
  #bytes = 0;

  /** Counts bytes. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < SILENT) return;
    const read = Math.floor(this.#bytes / MIB);
    if (this.#bar.isActive) this.#bar.update(read);
    else this.#bar.start(Number.POSITIVE_INFINITY, read);
  }

  /** Removes the line from the terminal, before something else is printed. The next bytes show it again. */
  hide(): void {
    this.#bar.stop();
  }

  [Symbol.dispose](): void {
    this.hide();
  }
}
