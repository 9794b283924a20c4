/** The parts of a message that tries to smuggle a request. */
export interface Smuggled {
  /** Path of the request that every server sees. */
  readonly path: string;
  /** Value of its Host. */
  readonly host: string;
  /** A request as a whole that no server may take for one: `GET /path HTTP/1.1`, Host, an empty line. */
  readonly hidden: string;
}

/** One known way to send a request that two servers read differently. Text is Latin-1. */
export interface SmugglingShape {
  readonly name: string;
  /**
   * `refused`: the gateway refuses it and closes the connection. `body`: it is one request, and what is hidden is in its
   * body, or is read by nobody. `next`: what is hidden is an ordinary next request.
   */
  readonly reading: 'refused' | 'body' | 'next';
  bytes(smuggled: Smuggled): string;
}

type Lines = (smuggled: Smuggled) => string;

/** A POST with these header lines, and behind its head this body. */
function post(name: string, reading: SmugglingShape['reading'], lines: string, body: Lines): SmugglingShape {
  return {
    name,
    reading,
    bytes: (smuggled) =>
      `POST ${smuggled.path} HTTP/1.1\r\nHost: ${smuggled.host}\r\n${lines}\r\n${body(smuggled)}`,
  };
}

/** A GET with these header lines, and what is hidden behind it. */
function get(name: string, reading: SmugglingShape['reading'], lines: Lines): SmugglingShape {
  return {
    name,
    reading,
    bytes: (smuggled) =>
      `GET ${smuggled.path} HTTP/1.1\r\nHost: ${smuggled.host}\r\n${lines(smuggled)}\r\n${smuggled.hidden}`,
  };
}

/** Bytes as they come, in place of a head by the rules. */
function raw(name: string, reading: SmugglingShape['reading'], bytes: Lines): SmugglingShape {
  return { name, reading, bytes };
}

const hex = (text: string): string => text.length.toString(16);
const afterLastChunk: Lines = ({ hidden }) => `0\r\n\r\n${hidden}`;
const bare: Lines = ({ hidden }) => hidden;

const LENGTH_AND_CODING: readonly SmugglingShape[] = [
  raw('CL.TE', 'refused', ({ path, host, hidden }) => {
    const body = `0\r\n\r\n${hidden}`;
    return `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n\r\n${body}`;
  }),
  raw(
    'TE.CL',
    'refused',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n${hex(hidden)}\r\n${hidden}\r\n0\r\n\r\n`,
  ),
  raw(
    'CL.0: a length on a GET',
    'body',
    ({ path, host, hidden }) =>
      `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
  raw(
    'CL.0: chunks on a GET',
    'body',
    ({ path, host, hidden }) =>
      `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n${hex(hidden)}\r\n${hidden}\r\n0\r\n\r\n`,
  ),
  raw(
    'CL.0: a length on a DELETE',
    'body',
    ({ path, host, hidden }) =>
      `DELETE ${path} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
  post('0.CL', 'next', 'Content-Length: 0\r\n', bare),
  post('0.CL: leading zeros', 'next', 'Content-Length: 0000\r\n', bare),
  post('0.CL: no length at all', 'next', '', bare),
];

const LENGTHS: readonly SmugglingShape[] = [
  ['twice, equal', 'Content-Length: 0\r\nContent-Length: 0\r\n'],
  ['twice, different', 'Content-Length: 0\r\nContent-Length: 60\r\n'],
  ['a list', 'Content-Length: 0, 60\r\n'],
  ['a list of equals', 'Content-Length: 0,0\r\n'],
  ['with a plus', 'Content-Length: +0\r\n'],
  ['with a minus', 'Content-Length: -0\r\n'],
  ['negative', 'Content-Length: -1\r\n'],
  ['hexadecimal', 'Content-Length: 0x0\r\n'],
  ['with a fraction', 'Content-Length: 0.0\r\n'],
  ['with an exponent', 'Content-Length: 0e0\r\n'],
  ['with a space in it', 'Content-Length: 0 60\r\n'],
  ['quoted', 'Content-Length: "0"\r\n'],
  ['empty', 'Content-Length:\r\n'],
  ['beyond 64 bits', 'Content-Length: 18446744073709551616\r\n'],
  ['with a vertical tab', 'Content-Length: \x0b0\r\n'],
  ['with a space before the colon', 'Content-Length : 0\r\n'],
  ['with a tab before the colon', 'Content-Length\t: 0\r\n'],
  ['with a NUL', 'Content-Length: 0\0\r\n'],
  ['on a continued line', 'Content-Length:\r\n 0\r\n'],
  ['behind a bare LF', 'X: y\nContent-Length: 60\r\nContent-Length: 0\r\n'],
  ['behind a bare CR', 'X: y\rContent-Length: 60\r\n'],
].map(([name = '', lines = '']) => post(`length ${name}`, 'refused', lines, bare));

const CODINGS: readonly SmugglingShape[] = [
  ['of an unknown name', 'Transfer-Encoding: xchunked\r\n'],
  ['in a list with identity', 'Transfer-Encoding: identity, chunked\r\n'],
  ['before identity', 'Transfer-Encoding: chunked, identity\r\n'],
  ['twice', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n'],
  ['twice, the other unknown', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n'],
  ['twice in a list', 'Transfer-Encoding: chunked, chunked\r\n'],
  ['with a parameter', 'Transfer-Encoding: chunked;a=b\r\n'],
  ['quoted', 'Transfer-Encoding: "chunked"\r\n'],
  ['with a leading comma', 'Transfer-Encoding: ,chunked\r\n'],
  ['with a trailing comma', 'Transfer-Encoding: chunked,\r\n'],
  ['with a vertical tab', 'Transfer-Encoding: \x0bchunked\r\n'],
  ['with a form feed', 'Transfer-Encoding: chunked\x0c\r\n'],
  ['with a NUL', 'Transfer-Encoding: chunked\0\r\n'],
  ['with bytes above 7F', 'Transfer-Encoding: \xffchunked\r\n'],
  ['with a no-break space', 'Transfer-Encoding: \xa0chunked\r\n'],
  ['on a continued line', 'Transfer-Encoding:\r\n chunked\r\n'],
  ['continued', 'Transfer-Encoding: chunked\r\n , identity\r\n'],
  ['with a space before the colon', 'Transfer-Encoding : chunked\r\n'],
  ['with a tab before the colon', 'Transfer-Encoding\t: chunked\r\n'],
  ['with a NUL in the name', 'Transfer-Encoding\0: chunked\r\n'],
  ['with a byte above 7F in the name', 'Transfer-Encod\xefng: chunked\r\n'],
  ['behind a bare LF', 'X: y\nTransfer-Encoding: chunked\r\n'],
  ['behind a bare CR', 'X: y\rTransfer-Encoding: chunked\r\n'],
  ['behind two CR', 'X: y\r\r\nTransfer-Encoding: chunked\r\n'],
  ['empty', 'Transfer-Encoding:\r\n'],
  ['gzip', 'Transfer-Encoding: gzip\r\n'],
  ['in a first line that begins with a space', ' Transfer-Encoding: chunked\r\n'],
].map(([name = '', lines = '']) => post(`coding ${name}`, 'refused', lines, afterLastChunk));

const LAWFUL_CODINGS: readonly SmugglingShape[] = [
  ['in capitals', 'TRANSFER-ENCODING: CHUNKED\r\n'],
  ['behind a tab', 'Transfer-Encoding:\tchunked\r\n'],
  ['before spaces', 'Transfer-Encoding: chunked  \r\n'],
].map(([name = '', lines = '']) => post(`coding ${name}`, 'next', lines, afterLastChunk));

/** Names that CGI and others take for those of the framing; the length is that of the whole. */
const LIKE_NAMES: readonly SmugglingShape[] = [
  'Transfer_Encoding: chunked',
  'X-Transfer-Encoding: chunked',
  'Transfer-Encoding-: chunked',
  'Content_Length: 0',
].map((line) =>
  raw(`a header like one of the framing: ${line}`, 'body', ({ path, host, hidden }) => {
    const body = `0\r\n\r\n${hidden}`;
    return `POST ${path} HTTP/1.1\r\nHost: ${host}\r\n${line}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  }),
);

/** Bodies whose chunks are malformed, with what is hidden behind them. */
const CHUNKS: readonly SmugglingShape[] = [
  ['a size with 0x', '0x0\r\n\r\n'],
  ['a size with a plus', '+0\r\n\r\n'],
  ['a negative size', '-0\r\n\r\n'],
  ['a size behind a space', ' 0\r\n\r\n'],
  ['an empty size', '\r\n\r\n'],
  ['a size beyond 64 bits', '10000000000000000\r\n\r\n0\r\n\r\n'],
  ['a size of 2^64 + 5', '10000000000000005\r\nhello\r\n0\r\n\r\n'],
  ['a size with an underscore', '0_5\r\nhello\r\n0\r\n\r\n'],
  ['a size behind a bare LF', '5\nhello\r\n0\r\n\r\n'],
  ['a size behind a bare CR', '5\rhello\r\n0\r\n\r\n'],
  ['an extension with a bare LF', '5;a\nhello\r\n0\r\n\r\n'],
  ['an extension with a bare CR', '5;a\rb\r\nhello\r\n0\r\n\r\n'],
  ['an extension with a NUL', '5;a\0\r\nhello\r\n0\r\n\r\n'],
  ['data that are longer', '2\r\nhello\r\n0\r\n\r\n'],
  ['data that are shorter', '6\r\nhello\r\n0\r\n\r\n'],
  ['data without CRLF', '5\r\nhello0\r\n\r\n'],
  ['data with bare LF', '5\r\nhello\n0\r\n\r\n'],
  ['an empty line between chunks', '5\r\nhello\r\n\r\n0\r\n\r\n'],
  ['an end of bare LF', '5\r\nhello\r\n0\n\n'],
  ['a last chunk with a bare LF behind it', '5\r\nhello\r\n0\r\n\n'],
  ['a trailer with a space before the colon', '0\r\nX : y\r\n\r\n'],
  ['a trailer behind a bare LF', '0\r\nX: y\nZ: z\r\n\r\n'],
  ['trailers with a length', '5\r\nhello\r\n0\r\nContent-Length: 60\r\n\r\n'],
  ['trailers with a coding', '5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n'],
  ['a continued trailer', '0\r\nX: y\r\n z\r\n\r\n'],
].map(([name = '', chunks = '']) =>
  post(`chunks: ${name}`, 'refused', 'Transfer-Encoding: chunked\r\n', ({ hidden }) => `${chunks}${hidden}`),
);

/** Bodies whose chunks are lawful, though some servers read them otherwise. */
const LAWFUL_CHUNKS: readonly SmugglingShape[] = [
  ['sizes with leading zeros', '0000005\r\nhello\r\n00000\r\n\r\n'],
  ['extensions', '5;a;b=c;d="e"\r\nhello\r\n0;f\r\n\r\n'],
  ['a long extension', `5;a=${'b'.repeat(2_000)}\r\nhello\r\n0\r\n\r\n`],
  [
    'trailers with credentials',
    '5\r\nhello\r\n0\r\nAuthorization: Basic eDp5\r\nHost: other\r\nCookie: a=b\r\n\r\n',
  ],
].map(([name = '', chunks = '']) =>
  post(`chunks: ${name}`, 'next', 'Transfer-Encoding: chunked\r\n', ({ hidden }) => `${chunks}${hidden}`),
);

const HEADS: readonly SmugglingShape[] = [
  raw(
    'a head of LF alone',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\nHost: ${host}\n\n${hidden}`,
  ),
  raw(
    'a request line with LF alone',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a head that ends with LF',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\n${hidden}`,
  ),
  raw(
    'a request line with two spaces',
    'refused',
    ({ path, host, hidden }) => `GET  ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a request line with a space at its end',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1 \r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a request line that begins with a space',
    'refused',
    ({ path, host, hidden }) => ` GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a request line with tabs',
    'refused',
    ({ path, host, hidden }) => `GET\t${path}\tHTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a target with a space',
    'refused',
    ({ path, host, hidden }) => `GET ${path} x HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a target with a NUL',
    'refused',
    ({ path, host, hidden }) => `GET ${path}\0 HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a target with a bare CR',
    'refused',
    ({ path, host, hidden }) => `GET ${path}\rx HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a target with a fragment',
    'refused',
    ({ path, host, hidden }) => `GET ${path}#x HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw('HTTP/0.9', 'refused', ({ path, hidden }) => `GET ${path}\r\n\r\n${hidden}`),
  raw(
    'HTTP/0.9 whose target ends like a version',
    'refused',
    ({ path, host, hidden }) => `GET ${path}HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'HTTP/1.2',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.2\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'HTTP/2.0',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/2.0\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'HTTP/1.10',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.10\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'http/1.1',
    'refused',
    ({ path, host, hidden }) => `GET ${path} http/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw('the preface of HTTP/2', 'refused', ({ hidden }) => `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`),
  raw(
    'HTTP/1.0 with chunks',
    'refused',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.0\r\nHost: ${host}\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
  ),
  raw(
    'HTTP/1.0 without keep-alive',
    'body',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.0\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a method in lower case',
    'refused',
    ({ path, host, hidden }) => `get ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'empty lines before the request',
    'next',
    ({ path, host, hidden }) => `\r\n\r\nGET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n${hidden}`,
  ),
  get('a continued header', 'refused', () => 'X: y\r\n z: 1\r\n'),
  get('a header that is continued by a tab', 'refused', () => 'X: y\r\n\tz\r\n'),
  get('a space before a colon', 'refused', () => 'X : y\r\n'),
  get('a header without a colon', 'refused', () => 'X\r\n'),
  get('a header without a name', 'refused', () => ': y\r\n'),
  get('a name with a byte above 7F', 'refused', () => 'X\xe9: y\r\n'),
  get('a name with a NUL', 'refused', () => 'X\0: y\r\n'),
  get('a name with brackets', 'refused', () => 'X(1): y\r\n'),
  get('a value with a NUL', 'refused', () => 'X: y\0\r\n'),
  get('a value with a bare CR', 'refused', () => 'X: y\rZ: z\r\n'),
  get('a value with a bare LF', 'refused', () => 'X: y\nZ: z\r\n'),
  get(
    'a value with a whole request behind bare CR',
    'refused',
    ({ hidden }) => `X: ${hidden.replaceAll('\r\n', '\r')}\r\n`,
  ),
  get(
    'a value with a whole request behind bare LF',
    'refused',
    ({ hidden }) => `X: ${hidden.replaceAll('\r\n', '\n')}\r\n`,
  ),
];

const HOSTS: readonly SmugglingShape[] = [
  raw('no Host', 'refused', ({ path, hidden }) => `GET ${path} HTTP/1.1\r\n\r\n${hidden}`),
  get('two Host', 'refused', () => 'Host: other\r\n'),
  raw(
    'a Host with a list',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\r\nHost: ${host}, other\r\n\r\n${hidden}`,
  ),
  raw(
    'a Host with a path',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\r\nHost: ${host}/x\r\n\r\n${hidden}`,
  ),
  raw(
    'a Host with a user',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\r\nHost: x@${host}\r\n\r\n${hidden}`,
  ),
  raw(
    'a Host behind a space and colon',
    'refused',
    ({ path, host, hidden }) => `GET ${path} HTTP/1.1\r\nHost : ${host}\r\n\r\n${hidden}`,
  ),
];

const HOP_BY_HOP: readonly SmugglingShape[] = [
  raw(
    'Connection: content-length',
    'body',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: content-length\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
  raw(
    'Connection: transfer-encoding',
    'body',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n${hex(hidden)}\r\n${hidden}\r\n0\r\n\r\n`,
  ),
  get('Connection: host, authorization', 'next', () => 'Connection: keep-alive, host, authorization\r\n'),
  get('Connection: close', 'body', () => 'Connection: close\r\n'),
  get(
    'an upgrade to h2c',
    'next',
    () => 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n',
  ),
  get('an upgrade to an unknown protocol', 'next', () => 'Connection: upgrade\r\nUpgrade: x\r\n'),
  raw(
    'an upgrade to h2c with a body',
    'body',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
  get(
    'a Keep-Alive and Proxy-Connection',
    'next',
    () => 'Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n',
  ),
];

const EXPECT: readonly SmugglingShape[] = [
  raw(
    'Expect: 100-continue whose body comes at once',
    'body',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
  raw(
    'Expect: 100-continue on a GET with a length',
    'body',
    ({ path, host, hidden }) =>
      `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
  get('Expect: 100-continue without a body', 'next', () => 'Expect: 100-continue\r\n'),
  get('Expect of something unknown', 'next', () => 'Expect: y 100-continue\r\n'),
  raw(
    'two Expect',
    'body',
    ({ path, host, hidden }) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
  ),
];

/** Every known shape. */
export const SMUGGLING_SHAPES: readonly SmugglingShape[] = [
  ...LENGTH_AND_CODING,
  ...LENGTHS,
  ...CODINGS,
  ...LAWFUL_CODINGS,
  ...LIKE_NAMES,
  ...CHUNKS,
  ...LAWFUL_CHUNKS,
  ...HEADS,
  ...HOSTS,
  ...HOP_BY_HOP,
  ...EXPECT,
];
