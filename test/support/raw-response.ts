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
