/** How many inputs of chance a test tries: `usual`, or what FUZZ_RUNS says. */
export function fuzzRuns(usual: number): number {
  return Number(process.env['FUZZ_RUNS'] ?? usual);
}

/** Bytes that matter to every parser of HTTP. */
export const PARSER_BYTES: readonly string[] = [
  ...['\r', '\n', '\r\n', '\r\n\r\n', '\0', '\t', ' ', ':', ';', ',', '"', '\x7f', '\xff'],
  ...['0', '1', 'f', '-', '+'],
];

/** Parts of responses that change how the rest is read. */
export const RESPONSE_PARTS: readonly string[] = [
  'Content-Length: 1\r\n',
  'Content-Length: 7\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: x\r\n',
  'Connection: close\r\n',
  '0\r\n\r\n',
  '1\r\na\r\n',
  'HTTP/1.1 200 OK\r\n',
  'HTTP/1.1 103 x\r\n\r\n',
  ' x: y\r\n',
];

/** Parts of requests that change how the rest is read. */
export const REQUEST_PARTS: readonly string[] = [
  '\x0b',
  '#',
  '?',
  '%',
  '\\',
  '/../',
  'Content-Length: 1\r\n',
  'Content-Length: 0\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: x\r\n',
  'Connection: close\r\n',
  'Connection: keep-alive\r\n',
  'Expect: 100-continue\r\n',
  '0\r\n\r\n',
  '1\r\na\r\n',
  ' x: y\r\n',
  'HTTP/1.1',
  'HTTP/1.0',
  'Host: other\r\n',
  'http://',
  '\x16\x03\x01',
];
