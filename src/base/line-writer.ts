import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import { messageOf } from './error-code.ts';
import { ignoreAbort, reportDefect } from './expected-errors.ts';
import type { Log } from './log.ts';

/** Most bytes that wait for a slow disk or reader; later lines are lost. */
const BACKLOG = 1024 * 1024;
/** Time until a file that could not be opened is tried again, in milliseconds. */
const RETRY_MS = 1_000;
/** Time between two messages about lost lines, in milliseconds. */
const QUIET_MS = 10_000;
/** Most time for the last lines when the writer is closed, in milliseconds. */
const CLOSE_MS = 2_000;

type Stream = ReturnType<typeof pino.destination>;

/**
 * Appends lines to a file or to stdout without keeping the caller waiting. Lines that cannot be written are
 * lost; the log says how many, and why.
 */
export class LineWriter {
  readonly #destination: string | 1;
  readonly #name: string;
  readonly #log: Log;
  readonly #onLost: () => void;
  /** Undefined while the file cannot be opened. */
  #stream: Stream | undefined;
  #retryAt = 0;
  /** Lines since the file was opened; they are lost if that fails. */
  #early = 0;
  #lost = 0;
  #reason = 'it takes lines more slowly than they come';
  #tellTimer: NodeJS.Timeout | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;

  /**
   * `destination`: a file, or 1 for stdout; `name`: the key of the configuration, for messages; `onLost` is called for
   * each lost line.
   */
  constructor(destination: string | 1, name: string, log: Log, onLost: () => void) {
    this.#destination = destination;
    this.#name = name;
    this.#log = log;
    this.#onLost = onLost;
    this.#open();
  }

  /** Appends a line, which ends with a line break. */
  write(line: string): void {
    if (this.#stream === undefined && performance.now() >= this.#retryAt) this.#open();
    if (this.#stream === undefined) this.#lose();
    else {
      this.#early += 1;
      this.#stream.write(line);
    }
  }

  /** Opens the file by its name again, after a rotation. Earlier lines go to the old file. */
  reopen(): void {
    if (this.#destination === 1) return;
    this.#stream?.end();
    this.#open();
  }

  /** Writes the lines that wait, for two seconds at most. */
  async close(): Promise<void> {
    const stream = this.#stream;
    this.#stream = undefined;
    this.#retryAt = Number.POSITIVE_INFINITY;
    if (stream !== undefined) {
      const closed = once(stream, 'close').catch(reportDefect);
      stream.end();
      const ended = new AbortController();
      await Promise.race([closed, delay(CLOSE_MS, undefined, { signal: ended.signal }).catch(ignoreAbort)]);
      ended.abort();
    }
    clearTimeout(this.#tellTimer);
    if (this.#lost > 0) this.#tell();
  }

  #open(): void {
    // Others may not read addresses of clients.
    const stream = pino.destination({
      dest: this.#destination,
      sync: false,
      maxLength: BACKLOG,
      mode: 0o640,
    });
    let isOpen = false;
    this.#early = 0;
    stream.on('ready', () => {
      isOpen = true;
    });
    stream.on('drop', () => this.#lose());
    stream.on('error', (error: unknown) => {
      this.#reason = messageOf(error);
      // The stream would throw at the next line.
      if (!isOpen && this.#stream === stream) {
        this.#stream = undefined;
        this.#retryAt = performance.now() + RETRY_MS;
        for (; this.#early > 0; this.#early -= 1) this.#lose();
      }
      this.#tellSoon();
    });
    this.#stream = stream;
  }

  #lose(): void {
    this.#lost += 1;
    this.#onLost();
    this.#tellSoon();
  }

  #tellSoon(): void {
    const wait = Math.max(0, this.#toldAt + QUIET_MS - performance.now());
    this.#tellTimer ??= setTimeout(() => this.#tell(), wait).unref();
  }

  #tell(): void {
    const lost = this.#lost;
    this.#tellTimer = undefined;
    this.#toldAt = performance.now();
    this.#lost = 0;
    const where = this.#destination === 1 ? 'stdout' : this.#destination;
    this.#log.error(
      { lost, reason: this.#reason },
      `lines for ${where} cannot be written now; requests are served without them. Check ${this.#name}, its folder and the disk`,
    );
  }
}
