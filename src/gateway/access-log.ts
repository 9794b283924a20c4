import { LineWriter } from '../base/line-writer.ts';
import type { Log } from '../base/log.ts';

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
  readonly #wallTime: () => number;
  #target: AccessTarget | undefined;
  #writer: LineWriter | undefined;
  readonly #retired = new Set<Promise<void>>();
  #second = 0;
  #time = '';

  /** `onLost` is called for each line that could not be written; `wallTime`: Unix milliseconds. */
  constructor(log: Log, onLost: () => void, wallTime: () => number = Date.now) {
    this.#log = log;
    this.#onLost = onLost;
    this.#wallTime = wallTime;
  }

  /** False: `add` does nothing. */
  get enabled(): boolean {
    return this.#writer !== undefined;
  }

  /** Changes where lines go; undefined: nowhere. */
  configure(target: AccessTarget | undefined): void {
    if (fileOf(target) === fileOf(this.#target)) return;
    this.#target = target;
    this.#retire();
    const file = fileOf(target);
    if (file !== undefined) this.#writer = new LineWriter(file, 'log.access', this.#log, this.#onLost);
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
    return `${address} - ${client === '' ? '-' : client} [${this.#now()}] "${request}" ${status} ${size} "${page}" "${escaped(userAgent ?? '-')}"\n`;
  }

  /** Returns the time in UTC; formatted once a second. */
  #now(): string {
    const second = Math.floor(this.#wallTime() / 1000);
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
