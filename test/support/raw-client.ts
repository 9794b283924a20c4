import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** A client that sends exactly the bytes it is given, right or wrong. */
export class RawClient {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #ended = false;
  #news: (() => void) | undefined;
  #failure: Error | undefined;

  private constructor(socket: Socket) {
    this.socket = socket;
    const tell = (): void => this.#news?.();
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      tell();
    });
    socket.on('error', (error) => {
      this.#failure = error;
    });
    for (const event of ['end', 'close'] as const) {
      socket.on(event, () => {
        this.#ended = true;
        tell();
      });
    }
  }

  /**
   * Connects, with `ca` (PEM) over TLS to a server that it signed; keeps its own side open after the server has ended
   * its side.
   */
  static async open(port: number, ca?: string): Promise<RawClient> {
    const options = { port, host: '127.0.0.1', allowHalfOpen: true };
    const socket = ca === undefined ? connect(options) : connectTls({ ...options, ca });
    const client = new RawClient(socket);
    await once(socket, ca === undefined ? 'connect' : 'secureConnect');
    return client;
  }

  /** Latin-1 text or bytes. Resolves when they are handed over, or the connection is gone. */
  send(...parts: readonly (string | Buffer)[]): Promise<void> {
    const bytes = Buffer.concat(
      parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : part)),
    );
    return new Promise((resolve) => this.socket.write(bytes, () => resolve()));
  }

  /** The next whole answer, interim ones included. Rejects when the connection ends without one. */
  async answer(method = 'GET'): Promise<RawResponse> {
    for (;;) {
      const found = readRawResponse(this.#received, { method, ended: this.#ended });
      if (found !== undefined) {
        this.#received = this.#received.subarray(found.length);
        return found.answer;
      }
      if (this.#ended) throw this.#failure ?? new Error(`ended early, after ${this.#received.length} bytes`);
      await this.#more();
    }
  }

  /** Resolves when the server has ended its side, to the bytes that no answer has taken. */
  async end(): Promise<Buffer> {
    while (!this.#ended) await this.#more();
    return this.#received;
  }

  /** How many bytes are there that no answer has taken. */
  get pending(): number {
    return this.#received.length;
  }

  close(): void {
    this.socket.destroy();
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#news = resolve;
    });
  }
}

/** An HTTP/1.1 answer as it stands on the wire; text is Latin-1. */
export interface RawResponse {
  /** `1.1` or `1.0`. */
  readonly version: string;
  readonly status: number;
  readonly reason: string;
  /** In order, with their case. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  readonly trailers: readonly (readonly [string, string])[];
}

/** Facts beside the response on which its framing depends (RFC 9112 §6.3). */
export interface Framing {
  /** Method of the request. */
  readonly method: string;
  /** The server has ended the connection. */
  readonly ended: boolean;
}

/**
 * Takes the first answer off the bytes; undefined: it is not all there yet. Strict, and written without
 * the parser that the gateway uses, so that a mistake of that parser is seen.
 */
export function readRawResponse(
  bytes: Buffer,
  { method, ended }: Framing,
): { readonly answer: RawResponse; readonly length: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const [, version, status, reason = ''] = /^HTTP\/(1\.[01]) (\d{3}) (.*)$/.exec(statusLine) ?? [];
  if (version === undefined) throw new Error(`no status line: ${JSON.stringify(statusLine.slice(0, 80))}`);
  const headers = lines.map(readField);
  const content = readContent(bytes, headEnd + 4, {
    headers,
    ended,
    bodyless: isBodyless(method, Number(status)),
  });
  if (content === undefined) return undefined;
  const { body, trailers, end } = content;
  return { answer: { version, status: Number(status), reason, headers, body, trailers }, length: end };
}

/** The values of a header, in order. */
export function valuesOf(answer: Pick<RawResponse, 'headers'>, name: string): string[] {
  return answer.headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
}

type Field = readonly [string, string];

interface Content {
  readonly body: Buffer;
  readonly trailers: readonly Field[];
  /** Where the answer ends. */
  readonly end: number;
}

interface Head {
  readonly headers: readonly Field[];
  readonly ended: boolean;
  readonly bodyless: boolean;
}

function isBodyless(method: string, status: number): boolean {
  return method === 'HEAD' || status < 200 || status === 204 || status === 304;
}

function readField(line: string): Field {
  const colon = line.indexOf(':');
  if (colon < 1) throw new Error(`no header: ${JSON.stringify(line)}`);
  return [line.slice(0, colon), line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, '')];
}

function readContent(bytes: Buffer, start: number, head: Head): Content | undefined {
  if (head.bodyless) return { body: Buffer.alloc(0), trailers: [], end: start };
  const [coding, ...codings] = valuesOf(head, 'transfer-encoding');
  const [length, ...lengths] = valuesOf(head, 'content-length');
  if (codings.length + lengths.length > 0 || (coding !== undefined && length !== undefined)) {
    throw new Error('framed twice');
  }
  if (coding !== undefined) return readChunks(bytes, start);
  if (length === undefined && !head.ended) return undefined;
  const end = length === undefined ? bytes.length : start + Number(length);
  return bytes.length < end ? undefined : { body: bytes.subarray(start, end), trailers: [], end };
}

function readChunks(bytes: Buffer, start: number): Content | undefined {
  const chunks: Buffer[] = [];
  let at = start;
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const line = bytes.toString('latin1', at, lineEnd);
    if (!/^[\da-f]+$/i.test(line)) throw new Error(`no chunk size: ${JSON.stringify(line.slice(0, 80))}`);
    const size = Number.parseInt(line, 16);
    at = lineEnd + 2;
    if (size === 0) return readTrailers(bytes, at, Buffer.concat(chunks));
    if (bytes.length < at + size + 2) return undefined;
    chunks.push(bytes.subarray(at, at + size));
    at += size + 2;
  }
}

function readTrailers(bytes: Buffer, start: number, body: Buffer): Content | undefined {
  const trailers: Field[] = [];
  let at = start;
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const line = bytes.toString('latin1', at, lineEnd);
    at = lineEnd + 2;
    if (line === '') return { body, trailers, end: at };
    trailers.push(readField(line));
  }
}
