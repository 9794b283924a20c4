import { once } from 'node:events';
import { pino } from 'pino';
import { inTime } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import { reportDefect } from '../base/expected-errors.ts';
import { type Log, ownDescription } from '../base/log.ts';

/** Most characters of a path or header field in a line. */
const LONGEST_PART = 1024;

/** Where the access log goes. */
export type AccessTarget = 'stdout' | { readonly file: string };

/** One request in the access log. */
export interface AccessEntry {
  readonly address: string;
  /** Empty if it was not identified. */
  readonly client: string;
  /** Empty if the message was no request that can be handled. */
  readonly method: string;
  /** Path without query, which can identify a person. */
  readonly path: string;
  readonly httpVersion: string;
  readonly status: number;
  /** Bytes of the response body. */
  readonly bytes: number;
  readonly referer: string | undefined;
  readonly userAgent: string | undefined;
}

/** The parts of a message that could not be read as a request, or is none that is handled. */
export const UNREADABLE = {
  client: '',
  method: '',
  path: '',
  httpVersion: '',
  bytes: 0,
  referer: undefined,
  userAgent: undefined,
} as const;

/** The access log of the data plane, in the Combined Log Format of Apache httpd. */
export class AccessLog {
  readonly #log: Log;
  readonly #onLost: () => void;
  #target: AccessTarget | undefined;
  #writer: LineWriter | undefined;
  readonly #retired = new Set<Promise<void>>();
  #second = 0;
  #time = '';

  /** `onLost` is called for each line that could not be written. */
  constructor(log: Log, onLost: () => void) {
    this.#log = log;
    this.#onLost = onLost;
  }

  /** Changes where lines go; undefined: nowhere. */
  configure(target: AccessTarget | undefined): void {
    if (fileOf(target) === fileOf(this.#target)) return;
    this.#target = target;
    this.#retire();
    const file = fileOf(target);
    if (file !== undefined) this.#writer = new LineWriter(file, this.#log, this.#onLost);
  }

  /** Adds a request whose response has left. Never waits. */
  add(entry: AccessEntry): void {
    this.#writer?.write(this.#line(entry));
  }

  /** Opens the file by its name again, after a rotation. */
  reopen(): void {
    this.#writer?.reopen();
  }

  /** Writes the lines that wait, for two seconds at most. */
  async close(): Promise<void> {
    this.#retire();
    await Promise.all(this.#retired);
  }

  #retire(): void {
    if (this.#writer === undefined) return;
    const closed = this.#writer.close();
    this.#writer = undefined;
    this.#retired.add(closed);
    void closed.then(() => this.#retired.delete(closed));
  }

  #line({ address, client, method, path, httpVersion, ...rest }: AccessEntry): string {
    const { status, bytes, referer, userAgent } = rest;
    const request = method === '' ? '-' : `${escaped(method)} ${escaped(path)} HTTP/${httpVersion}`;
    const size = bytes === 0 ? '-' : bytes;
    // A referer can have a query of the client's user.
    const page = escaped(referer?.split('?', 1)[0] ?? '-');
    return `${address === '' ? '-' : address} - ${client === '' ? '-' : client} [${this.#now()}] "${request}" ${status} ${size} "${page}" "${escaped(userAgent ?? '-')}"\n`;
  }

  /** Returns the time in UTC; formatted once a second. */
  #now(): string {
    const second = Math.floor(Date.now() / 1000);
    if (second === this.#second) return this.#time;
    this.#second = second;
    // "Sun, 22 Nov 2026 10:18:47 GMT"
    const [, day, month, year, time] = new Date(second * 1000).toUTCString().split(' ');
    this.#time = `${day}/${month}/${year}:${time} +0000`;
    return this.#time;
  }
}

function fileOf(target: AccessTarget | undefined): string | 1 | undefined {
  return target === 'stdout' ? 1 : target?.file;
}

/** Escapes as httpd does: a client must not be able to end the field or the line. */
function escaped(text: string): string {
  return text
    .slice(0, LONGEST_PART)
    .replaceAll(/["\\]|[^ -~]/gu, (character) =>
      character === '"' || character === '\\' ? `\\${character}` : hexBytes(character),
    );
}

function hexBytes(character: string): string {
  return [...Buffer.from(character)].map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('');
}

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
class LineWriter {
  readonly #destination: string | 1;
  readonly #log: Log;
  readonly #onLost: () => void;
  /** Undefined while the file cannot be opened. */
  #stream: Stream | undefined;
  #retryAt = 0;
  /** Lines since the file was opened; they are lost if that fails. */
  #early = 0;
  #lost = 0;
  #reason = 'it takes lines more slowly than they come';
  #isClosed = false;
  #tellTimer: NodeJS.Timeout | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;

  /** `destination`: a file, or 1 for stdout; `onLost` is called for each lost line. */
  constructor(destination: string | 1, log: Log, onLost: () => void) {
    this.#destination = destination;
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
      await inTime(closed, CLOSE_MS);
      this.#isClosed = true;
      forget(stream);
    }
    clearTimeout(this.#tellTimer);
    if (this.#lost > 0) this.#tell();
  }

  #open(): void {
    // Others may not read addresses of clients.
    const stream = pino.destination({
      dest: this.#destination === 1 ? ownDescription(1) : this.#destination,
      sync: false,
      maxLength: BACKLOG,
      mode: 0o640,
      // Otherwise a pipe that nobody reads would keep the process from ending.
      retryEAGAIN: () => !this.#isClosed,
    });
    let isOpen = false;
    this.#early = 0;
    stream.on('ready', () => {
      isOpen = true;
    });
    stream.on('drop', () => this.#lose());
    stream.on('error', (error: unknown) => {
      this.#reason = messageOf(error);
      if (!isOpen) forget(stream);
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
      `lines for ${where} cannot be written now; requests are served without them. Check log.access, its folder and the disk`,
    );
  }
}

/** Otherwise pino would flush it when the process ends, which throws. */
function forget(stream: Stream): void {
  stream.emit('close');
}
