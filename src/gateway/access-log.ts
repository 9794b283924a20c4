import { close, constants, open, write } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { inTime } from '../base/clock.ts';
import { errorCode, messageOf } from '../base/error-code.ts';
import { ignoreAbort, reportDefect } from '../base/expected-errors.ts';
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
  /** As its bytes were sent, in Latin-1, as the next one. */
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

/** Escapes Latin-1 as httpd does: a client must not be able to end the field or the line. */
function escaped(text: string): string {
  return text
    .slice(0, LONGEST_PART)
    .replaceAll(/["\\]|[^ -~]/g, (character) =>
      character === '"' || character === '\\' ? `\\${character}` : hexByte(character),
    );
}

function hexByte(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
}

/** Most bytes that wait for a slow disk or reader; later lines are lost. */
const BACKLOG = 1024 * 1024;
/** Time until a file that could not be opened is tried again, in milliseconds. */
const OPEN_AGAIN_MS = 1_000;
/** Time until a write that failed is tried again, in milliseconds. */
const WRITE_AGAIN_MS = 100;
/** Time between two messages about lost lines, in milliseconds. */
const QUIET_MS = 10_000;
/** Most time for the last lines when the writer is closed, in milliseconds. */
const CLOSE_MS = 2_000;
/** Time in which a writer that no longer waits for its reader ends, unless the disk does not respond, in milliseconds. */
const STOP_MS = 100;

const { O_APPEND, O_CREAT, O_NONBLOCK, O_WRONLY } = constants;
const openFile = promisify(open);
const writeFile = promisify(write);
const closeFile = promisify(close);

/**
 * Appends lines to a file or to stdout without keeping the caller waiting. Lines that cannot be written are
 * lost; the log says how many, and why. Its operations follow each other, since each one that a disk does not end
 * takes a thread from all other files.
 */
class LineWriter {
  readonly #destination: string | 1;
  readonly #log: Log;
  readonly #onLost: () => void;
  /** Undefined while the file cannot be opened. */
  #fd: number | undefined;
  #isStale = true;
  #openAgainAt = 0;
  /** Lines that are for the old file after a rotation. */
  #earlier: string[] = [];
  #lines: string[] = [];
  #bytes = 0;
  #work: Promise<void> | undefined;
  readonly #stopped = new AbortController();
  #lost = 0;
  #reason = 'it takes lines more slowly than they come';
  #tellTimer: NodeJS.Timeout | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;

  /** `destination`: a file, or 1 for stdout; `onLost` is called for each lost line. */
  constructor(destination: string | 1, log: Log, onLost: () => void) {
    this.#destination = destination;
    this.#log = log;
    this.#onLost = onLost;
    this.#start();
  }

  /** Appends a line, which ends with a line break. */
  write(line: string): void {
    const size = Buffer.byteLength(line);
    if (this.#bytes + size > BACKLOG || performance.now() < this.#openAgainAt) {
      this.#lose(1);
      return;
    }
    this.#bytes += size;
    this.#lines.push(line);
    this.#start();
  }

  /** Opens the file by its name again, after a rotation. Earlier lines go to the old file. */
  reopen(): void {
    if (this.#destination === 1) return;
    this.#earlier.push(...this.#lines.splice(0));
    this.#isStale = true;
    this.#openAgainAt = 0;
    this.#start();
  }

  /** Writes the lines that wait, for two seconds at most. */
  async close(): Promise<void> {
    await inTime(this.#work, CLOSE_MS);
    this.#stopped.abort();
    const closed = Promise.resolve(this.#work).then(() => this.#replace(undefined));
    await inTime(closed, STOP_MS);
    clearTimeout(this.#tellTimer);
    if (this.#lost > 0) this.#tell();
  }

  #start(): void {
    this.#work ??= this.#run();
  }

  async #run(): Promise<void> {
    try {
      do {
        await this.#append(this.#earlier.splice(0));
        if (this.#isStale) await this.#open();
        await this.#append(this.#lines.splice(0));
      } while (this.#fd !== undefined && (this.#isStale || this.#lines.length > 0));
    } finally {
      this.#work = undefined;
    }
  }

  async #open(): Promise<void> {
    try {
      this.#isStale = false;
      // Opening a pipe without a reader would wait for one. Others may not read addresses of clients.
      const flags = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK;
      const name = this.#destination;
      await this.#replace(name === 1 ? ownDescription(1) : await openFile(name, flags, 0o640));
    } catch (error) {
      this.#isStale = true;
      await this.#replace(undefined);
      this.#openAgainAt = performance.now() + OPEN_AGAIN_MS;
      this.#fail(error);
    }
  }

  /** Appends to the open file from now on. */
  async #replace(fd: number | undefined): Promise<void> {
    const old = this.#fd;
    this.#fd = fd;
    if (old !== undefined && old !== 1) await closeFile(old).catch(reportDefect);
  }

  async #append(lines: readonly string[]): Promise<void> {
    let rest = Buffer.from(lines.join(''));
    while (rest.length > 0 && this.#fd !== undefined) {
      try {
        const { bytesWritten } = await writeFile(this.#fd, rest);
        rest = rest.subarray(bytesWritten);
        this.#bytes -= bytesWritten;
      } catch (error) {
        if (errorCode(error) !== 'EAGAIN') this.#fail(error);
        const { signal } = this.#stopped;
        if (this.#isStale || signal.aborted) break;
        await delay(WRITE_AGAIN_MS, undefined, { signal }).catch(ignoreAbort);
      }
    }
    if (rest.length > 0) this.#giveUp(rest.toString());
  }

  #fail(error: unknown): void {
    this.#reason = messageOf(error);
    this.#tellSoon();
  }

  #giveUp(text: string): void {
    this.#bytes -= Buffer.byteLength(text);
    this.#lose(text.split('\n').length - 1);
  }

  #lose(lines: number): void {
    for (let line = 0; line < lines; line += 1) this.#onLost();
    this.#lost += lines;
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
      `lines for ${where} could not be written; requests are served without them. Check log.access, its folder and the disk`,
    );
  }
}
