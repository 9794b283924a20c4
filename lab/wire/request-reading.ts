/** A request as RFC 9112 has it. Text is Latin-1. */
export interface ReadRequest {
  readonly method: string;
  readonly target: string;
  readonly version: '1.0' | '1.1';
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
  /** Bytes of its head. */
  readonly headLength: number;
  /** Position of its end. */
  readonly end: number;
  /** True if it says that no further request follows on the connection. */
  readonly isLast: boolean;
}

export interface RequestReading {
  /** Requests that came whole. */
  readonly requests: readonly ReadRequest[];
  /** The rest behind them. `last`: they end with one that is the last of its connection, whatever follows. */
  readonly rest: 'nothing' | 'last' | 'incomplete' | 'malformed';
  /** The request whose head came, but whose body is not whole or malformed; its body is what came of it. */
  readonly begun: ReadRequest | undefined;
}

type Head = Omit<ReadRequest, 'body' | 'end'>;
interface Body {
  readonly body: string;
  /** Position of its end; undefined: see `rest`. */
  readonly end: number | undefined;
  readonly rest: 'nothing' | 'incomplete' | 'malformed';
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(1\.[01])$/;
const FIELD = /^([!#$%&'*+.^_`|~\w-]+):[\t ]*([\t\x20-\x7e\x80-\xff]*)$/;
/** RFC 9112 §7.1.1, without the white space of older senders. */
const CHUNK_LINE =
  /^([\da-f]+)(?:;[!#$%&'*+.^_`|~\w-]+(?:=(?:[!#$%&'*+.^_`|~\w-]+|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)*$/i;
/** RFC 9110 §6.5.1 forbids them as trailers: of the framing, and of the connection. */
const NO_TRAILER = /^(?:content-length|transfer-encoding|connection|proxy-connection|keep-alive|upgrade)$/i;

/**
 * Reads the requests of a connection by the letter of RFC 9112, without a parser that the gateway uses. What can be read
 * in two ways is malformed.
 */
export function readRequests(text: string): RequestReading {
  const requests: ReadRequest[] = [];
  for (let at = 0; ; ) {
    // Empty lines before a request are ignored (RFC 9112 §2.2).
    while (text.startsWith('\r\n', at)) at += 2;
    if (at >= text.length || text.slice(at) === '\r') return { requests, rest: 'nothing', begun: undefined };
    if (text[at] === '\r' || text[at] === '\n') return { requests, rest: 'malformed', begun: undefined };
    const { request, rest } = readRequest(text, at);
    if (rest !== 'nothing' || request === undefined) return { requests, rest, begun: request };
    requests.push(request);
    if (request.isLast) return { requests, rest: 'last', begun: undefined };
    at = request.end;
  }
}

/** `rest`: what keeps the request from being whole; `nothing`: it is. */
function readRequest(text: string, at: number): { request: ReadRequest | undefined; rest: Body['rest'] } {
  const headEnd = text.indexOf('\r\n\r\n', at);
  if (headEnd === -1) return { request: undefined, rest: 'incomplete' };
  const head = readHead(text.slice(at, headEnd));
  const framing = head === undefined ? undefined : framingOf(head);
  if (head === undefined || framing === undefined) return { request: undefined, rest: 'malformed' };
  const start = headEnd + 4;
  const {
    body,
    end = text.length,
    rest,
  } = framing === 'chunked' ? readChunks(text, start) : readLength(text, start, framing);
  return { request: { ...head, body, end }, rest };
}

/** The values of a header, in order; `name` in lower case. */
export function valuesOf({ headers }: Pick<ReadRequest, 'headers'>, name: string): string[] {
  return headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
}

function readHead(text: string): Head | undefined {
  const [line = '', ...lines] = text.split('\r\n');
  const [, method, target, version] = REQUEST_LINE.exec(line) ?? [];
  if (method === undefined || target === undefined || version === undefined) return undefined;
  const headers = readFields(lines);
  if (headers === undefined) return undefined;
  const options = valuesOf({ headers }, 'connection')
    .join(',')
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  return {
    method,
    target,
    version: version === '1.0' ? '1.0' : '1.1',
    headers,
    headLength: text.length + 4,
    isLast: options.includes('close') || (version === '1.0' && !options.includes('keep-alive')),
  };
}

function readFields(lines: readonly string[]): [string, string][] | undefined {
  const fields: [string, string][] = [];
  for (const line of lines) {
    const [, name, value] = FIELD.exec(line) ?? [];
    if (name === undefined || value === undefined) return undefined;
    fields.push([name, value.replace(/[\t ]+$/, '')]);
  }
  return fields;
}

/** `chunked`, or the length of the body; undefined: it can be read in two ways. */
function framingOf(head: Head): 'chunked' | number | undefined {
  const [coding, ...codings] = valuesOf(head, 'transfer-encoding');
  const [length, ...lengths] = valuesOf(head, 'content-length');
  if (codings.length + lengths.length > 0) return undefined;
  if (coding !== undefined) {
    const isPlain = coding.toLowerCase() === 'chunked' && head.version === '1.1' && length === undefined;
    return isPlain ? 'chunked' : undefined;
  }
  if (length === undefined) return 0;
  return /^\d+$/.test(length) && Number.isSafeInteger(Number(length)) ? Number(length) : undefined;
}

function readLength(text: string, start: number, length: number): Body {
  const body = text.slice(start, start + length);
  return body.length < length
    ? { body, end: undefined, rest: 'incomplete' }
    : { body, end: start + length, rest: 'nothing' };
}

function readChunks(text: string, start: number): Body {
  let body = '';
  for (let at = start; ; ) {
    const lf = text.indexOf('\n', at);
    if (lf === -1) return { body, end: undefined, rest: 'incomplete' };
    const [, digits] = CHUNK_LINE.exec(text.slice(at, lf - 1)) ?? [];
    const size = Number.parseInt(digits ?? '', 16);
    if (text[lf - 1] !== '\r' || !Number.isSafeInteger(size))
      return { body, end: undefined, rest: 'malformed' };
    at = lf + 1;
    if (size === 0) return readTrailers(text, at, body);
    body += text.slice(at, at + size);
    at += size;
    if (text.length < at + 2) return { body, end: undefined, rest: 'incomplete' };
    if (!text.startsWith('\r\n', at)) return { body, end: undefined, rest: 'malformed' };
    at += 2;
  }
}

function readTrailers(text: string, start: number, body: string): Body {
  if (text.startsWith('\r\n', start)) return { body, end: start + 2, rest: 'nothing' };
  const end = text.indexOf('\r\n\r\n', start);
  if (end === -1) return { body, end: undefined, rest: 'incomplete' };
  const fields = readFields(text.slice(start, end).split('\r\n'));
  return fields === undefined || fields.some(([name]) => NO_TRAILER.test(name))
    ? { body, end: undefined, rest: 'malformed' }
    : { body, end: end + 4, rest: 'nothing' };
}
