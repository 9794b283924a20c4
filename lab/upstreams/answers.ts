import { PARSER_BYTES, RESPONSE_PARTS } from '../../test/support/fuzz.ts';
import type { Random } from '../simulation/random.ts';

/** The bytes of the upstream for one request. Text is Latin-1. */
export interface Answer {
  readonly bytes: string;
  /** Places in the bytes where a piece ends, ascending. */
  readonly cuts: readonly number[];
  /** Pauses between the pieces: none, a turn of the event loop, or some milliseconds. */
  readonly pace: 'at-once' | 'turns' | 'slow';
  /** The connection is kept, ended or reset afterwards, or nothing comes. */
  readonly ending: 'keep' | 'end' | 'reset' | 'silence';
  /** True if bytes were changed at random, so that its marker may read like that of another exchange. */
  readonly isMutated?: boolean;
}

/** Stands in everything that no client is to get. */
export const SECRET = 'torture-secret';

const STATUSES = [
  '200 OK',
  '200 OK',
  '200 OK',
  '201 Created',
  '204 No Content',
  '206 Partial',
  '302 Found',
  '304 Not Modified',
  '400 Bad Request',
  '403 Forbidden',
  '404 Not Found',
  '410',
  '418 ',
  '429 Too Many',
  '500 Oops',
  '503 Busy',
  '599 \xe9\xff',
  '299 a  b',
];

const FIELDS = [
  'X-A: b',
  'x-empty:',
  'Content-Type: text/xml',
  'X-Latin: caf\xe9\xff',
  'X-Same: 1\r\nX-Same: 2',
  `X-Long: ${'l'.repeat(3_000)}`,
  'Date: Sun, 22 Nov 2026 12:00:00 GMT',
  "!#$%&'*+-.^_`|~9: y",
  'X-Tab:\ta\tb\t',
  'Via: 1.0 x',
  'Keep-Alive: timeout=10',
  'Server: x',
  'ETag: "y"',
  `Set-Cookie: a=${SECRET}`,
  `WWW-Authenticate: Basic realm="${SECRET}"`,
  `Proxy-Authenticate: Digest nonce="${SECRET}"`,
  `Authentication-Info: nextnonce="${SECRET}-next"`,
  'X-Request-Id: of-the-upstream',
  'Trailer: X-T',
];

interface Head {
  readonly version: '1.0' | '1.1';
  readonly status: string;
  readonly lines: string[];
}

interface Content {
  readonly lines: readonly string[];
  readonly bytes: string;
  /** True if it ends with the connection. */
  readonly ends: boolean;
}

/** A response that follows the rules. */
export function cleanAnswer(random: Random, method: string, marker: string): Answer {
  const head = headOf(random, marker);
  const content = contentOf(random, method, head, marker);
  const closes = content.ends || random.next() < 0.05;
  if (closes && head.version === '1.1') head.lines.push('Connection: close');
  head.lines.push(...content.lines);
  const bytes = interimOf(random, marker) + textOf(head) + content.bytes;
  const isEnded = closes || head.version === '1.0';
  return { bytes, ...paceOf(random, bytes.length), ending: isEnded ? 'end' : 'keep' };
}

function headOf(random: Random, marker: string): Head {
  const count = random.whole(0, 4);
  return {
    version: random.next() < 0.05 ? '1.0' : '1.1',
    status: random.pick(STATUSES),
    lines: [`X-Marker: ${marker}`, ...Array.from({ length: count }, () => random.pick(FIELDS))],
  };
}

function textOf({ version, status, lines }: Head): string {
  return `HTTP/${version} ${status}\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
}

function contentOf(random: Random, method: string, { version, status }: Head, marker: string): Content {
  const body = `[${marker}]`.repeat(random.pick([0, 1, 1, 2, 40, 40, 3_000, 12_000]));
  if (status.startsWith('204') || status.startsWith('304')) return { lines: [], bytes: '', ends: false };
  const framing = random.pick(['length', 'length', 'chunks', 'end'] as const);
  const bytes = method === 'HEAD' ? '' : body;
  if (framing === 'length') return { lines: [`Content-Length: ${body.length}`], bytes, ends: false };
  if (framing === 'end' || version === '1.0') return { lines: [], bytes, ends: true };
  return {
    lines: ['Transfer-Encoding: chunked'],
    bytes: method === 'HEAD' ? '' : chunked(random, body),
    ends: false,
  };
}

function chunked(random: Random, body: string): string {
  let text = '';
  for (let at = 0; at < body.length; ) {
    const piece = body.slice(at, at + random.whole(1, Math.max(1, Math.ceil(body.length / 2))));
    at += piece.length;
    const size = piece.length.toString(16);
    text += `${random.pick(['', '', '00'])}${random.pick([size, size.toUpperCase()])}${random.pick(['', '', ';a=b', ';a="b;c"'])}\r\n${piece}\r\n`;
  }
  return `${text}0\r\n${random.pick(['', '', 'X-T: 1\r\n', `Set-Cookie: a=${SECRET}\r\n`, `Authentication-Info: nextnonce="${SECRET}"\r\n`])}\r\n`;
}

function interimOf(random: Random, marker: string): string {
  if (random.next() < 0.9) return '';
  const count = random.pick([1, 1, 2, 20]);
  return Array.from(
    { length: count },
    () =>
      `HTTP/1.1 ${random.pick(['100 Continue', '102 Processing', '103 Early Hints'])}\r\nX-Marker: ${marker}\r\n\r\n`,
  ).join('');
}

function paceOf(random: Random, length: number): Pick<Answer, 'cuts' | 'pace'> {
  if (length < 2 || random.next() < 0.6) return { cuts: [], pace: 'at-once' };
  const isShort = length < 400 && random.next() < 0.2;
  const cuts = isShort
    ? Array.from({ length: length - 1 }, (_, at) => at + 1)
    : Array.from({ length: random.whole(1, 8) }, () => random.whole(1, length - 1));
  return {
    cuts: [...new Set(cuts)].sort((one, other) => one - other),
    pace: random.next() < 0.02 && !isShort ? 'slow' : 'turns',
  };
}

/** A response that breaks off, breaks the rules, or says more than there is. */
export function brokenAnswer(random: Random, method: string, marker: string): Answer {
  const clean = cleanAnswer(random, method, marker);
  switch (random.whole(0, 9)) {
    case 0:
    case 1:
    case 2:
      return truncated(random, clean);
    case 3:
      return { ...clean, ending: random.pick(['end', 'reset']) };
    case 4:
      // Bytes behind a response would be taken for the response to the next request.
      return { ...clean, bytes: clean.bytes + surplusOf(random, marker), cuts: [] };
    case 5:
    case 6:
      return mutated(random, clean);
    case 7:
      return flood(random, marker);
    default:
      return withBytes(random, malformed(random, marker), random.pick(['keep', 'end']));
  }
}

function truncated(random: Random, { bytes, pace, cuts }: Answer): Answer {
  const length = random.whole(0, bytes.length - 1);
  const text = bytes.slice(0, length);
  const ending = random.next() < 0.002 ? 'silence' : random.pick(['end', 'reset'] as const);
  return { bytes: text, pace, cuts: cuts.filter((cut) => cut < length), ending };
}

function withBytes(random: Random, bytes: string, ending: Answer['ending']): Answer {
  // A response that can be read in two ways may be waited for: it ends with its connection.
  return {
    bytes,
    ...paceOf(random, bytes.length),
    ending: ending === 'keep' ? random.pick(['end', 'end', 'reset']) : ending,
  };
}

/** A response to nobody. */
function poisonOf(marker: string): string {
  return `HTTP/1.1 200 OK\r\nX-Marker: ${marker}\r\nContent-Length: ${marker.length + 2}\r\n\r\n[${marker}]`;
}

function surplusOf(random: Random, marker: string): string {
  const poison = poisonOf(marker);
  return random.pick([
    poison,
    poison.repeat(3),
    '\r\n',
    'x',
    '\0',
    `${poison.slice(0, 40)}`,
    `HTTP/1.1 103 x\r\n\r\n${poison}`,
  ]);
}

const SPICE = [...PARSER_BYTES, ...RESPONSE_PARTS];

function mutated(random: Random, { bytes, ending }: Answer): Answer {
  return { ...withBytes(random, mutatedBytes(random, bytes), ending), isMutated: true };
}

function mutatedBytes(random: Random, bytes: string): string {
  // A header with another name may be passed on.
  let text = bytes.replaceAll(SECRET, 'passed-on');
  for (let left = random.whole(1, 3); left > 0; left -= 1) {
    const at = random.whole(0, random.next() < 0.7 ? Math.min(text.length, 300) : text.length);
    const spice = random.pick(SPICE);
    const removed = random.pick([0, 0, 1, spice.length, random.whole(1, 8)]);
    text =
      text.slice(0, at) +
      random.pick([spice, '', String.fromCharCode(random.whole(0, 255))]) +
      text.slice(at + removed);
  }
  return text;
}

/** More, or larger, parts of a head than a client could want. */
function flood(random: Random, marker: string): Answer {
  const interim = `HTTP/1.1 103 Early Hints\r\nX-Marker: ${marker}\r\n${random.next() < 0.5 ? '' : `Link: ${'l'.repeat(2_000)}\r\n`}\r\n`;
  const final = `HTTP/1.1 200 OK\r\nX-Marker: ${marker}\r\nContent-Length: 2\r\n`;
  const bytes = random.pick([
    () => `${interim.repeat(random.pick([60, 64, 65, 66, 300]))}${final}\r\nok`,
    () => `${final}${'X-B: y\r\n'.repeat(random.pick([100, 3_000, 6_000]))}\r\nok`,
    () => `${final}X-B: ${'y'.repeat(random.pick([16_000, 32_000, 33_000, 200_000]))}\r\n\r\nok`,
    () =>
      `HTTP/1.1 200 ${'y'.repeat(random.pick([1_000, 40_000]))}\r\nX-Marker: ${marker}\r\nContent-Length: 2\r\n\r\nok`,
    () =>
      `HTTP/1.1 200 OK\r\nX-Marker: ${marker}\r\nTransfer-Encoding: chunked\r\n\r\n2;${'e'.repeat(random.pick([1_000, 5_000, 100_000]))}\r\nok\r\n0\r\n\r\n`,
    () =>
      `HTTP/1.1 200 OK\r\nX-Marker: ${marker}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: ${'t'.repeat(random.pick([1_000, 40_000]))}\r\n\r\n`,
    () =>
      `HTTP/1.1 200 OK\r\nX-Marker: ${marker}\r\nTransfer-Encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(5_000)}0\r\n\r\n`,
  ])();
  return { bytes, ...paceOf(random, bytes.length), ending: 'end' };
}

/** Responses that two programs could read differently, or that none can read. */
function malformed(random: Random, marker: string): string {
  const lines = random.pick(MALFORMED_LINES);
  const body = random.pick(['ok', `[${marker}]`, '2\r\nok\r\n0\r\n\r\n', '', '2\r\nok\r\n']);
  const line = random.next() < 0.75 ? 'HTTP/1.1 200 OK' : random.pick(STATUS_LINES);
  return `${line}\r\nX-Marker: ${marker}\r\n${lines}\r\n${body}${random.next() < 0.2 ? poisonOf(marker) : ''}`;
}

const MALFORMED_LINES = [
  'Content-Length: 2\r\nContent-Length: 2\r\n',
  'Content-Length: 2\r\nContent-Length: 3\r\n',
  'Content-Length: 2\r\nTransfer-Encoding: chunked\r\n',
  'Transfer-Encoding: chunked\r\nContent-Length: 2\r\n',
  'Content-Length: 2, 2\r\n',
  'Content-Length: +2\r\n',
  'Content-Length: -2\r\n',
  'Content-Length: 0x2\r\n',
  'Content-Length: 2 2\r\n',
  'Content-Length: 18446744073709551618\r\n',
  'Content-Length:\r\n',
  'Content-Length : 2\r\n',
  'Content-Length: 2\r\n X: y\r\n',
  ' X: y\r\nContent-Length: 2\r\n',
  'X: y\nContent-Length: 2\r\n',
  'X: y\rContent-Length: 2\r\n',
  'X: \0\r\nContent-Length: 2\r\n',
  'X\xe9: y\r\nContent-Length: 2\r\n',
  'no colon\r\nContent-Length: 2\r\n',
  'Transfer-Encoding: chunked, chunked\r\n',
  'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'Transfer-Encoding: chunked, gzip\r\n',
  'Transfer-Encoding: identity\r\n',
  'Transfer-Encoding: xchunked\r\n',
  'Transfer-Encoding: \x0bchunked\r\n',
  'Transfer-Encoding: chunked\t\r\n',
  'Transfer-Encoding : chunked\r\n',
  'Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n',
  'Connection: upgrade\r\nUpgrade: websocket\r\n',
  'Content-Length: 1\r\n',
  'Content-Length: 9\r\n',
  '',
];

const STATUS_LINES = [
  'HTTP/1.1 101 Switching',
  'HTTP/1.1 100 Continue',
  'HTTP/1.1 199 x',
  'HTTP/1.1 000 x',
  'HTTP/1.1 99 x',
  'HTTP/1.1 600 x',
  'HTTP/1.1 999 x',
  'HTTP/1.1 1000 x',
  'HTTP/2.0 200 OK',
  'HTTP/2 200',
  'HTTP/1.2 200 OK',
  'http/1.1 200 OK',
  'ICY 200 OK',
  'RTSP/1.0 200 OK',
  'HTTP/1.1  200 OK',
  'HTTP/1.1\t200 OK',
  ' HTTP/1.1 200 OK',
  '\r\nHTTP/1.1 200 OK',
  'HTTP/1.1 2 00',
  'HTTP/1.1 200\0OK',
  'HTTP/1.1 200 \x01',
  'HTTP/1.0 200 OK',
  'HTTP/1.1 204 No',
  'HTTP/1.1 304 x',
  'HTTP/1.1 401 x',
  '\x15\x03\x01\0\x02\x02\x28',
  'GET / HTTP/1.1',
  '<html>',
];

/** A challenge that can be answered. */
export function challengeAnswer(random: Random, marker: string, method: string, stale: boolean): Answer {
  const algorithm = random.pick(['MD5', 'MD5', 'SHA-256', 'MD5-sess']);
  const challenge = `Digest realm="r", nonce="${SECRET}-${marker}", qop="auth", algorithm=${algorithm}${stale ? ', stale=true' : ''}`;
  return unauthorized(random, [challenge], method, false);
}

function unauthorized(random: Random, challenges: readonly string[], method: string, isOdd: boolean): Answer {
  const body = SECRET.repeat(random.pick(isOdd ? [0, 1, 1_000, 6_000, 20_000] : [0, 0, 1, 100]));
  const closes = random.next() < 0.05;
  const isChunked = random.next() < 0.2;
  const lines = [
    ...challenges.map(
      (challenge) => `${random.pick(['WWW-Authenticate', 'www-authenticate'])}: ${challenge}`,
    ),
    ...(random.next() < 0.1 ? [`Set-Cookie: session=${SECRET}; Path=/`] : []),
    ...(closes ? ['Connection: close'] : []),
    isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`,
  ];
  const bytes = `HTTP/1.1 401 Unauthorized\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
  const whole = isChunked ? chunked(random, body) : body;
  const content = method === 'HEAD' ? '' : whole;
  return {
    bytes: bytes + content,
    ...paceOf(random, bytes.length + content.length),
    ending: closes ? 'end' : 'keep',
  };
}

const n = `nonce="${SECRET}"`;
const ODD_CHALLENGES: readonly (readonly string[])[] = [
  [],
  ['Basic realm="r"'],
  ['Digest'],
  ['Digest '],
  [`digest realm="r", ${n}`],
  ['Digest realm="r"'],
  [`Digest realm="r", ${n}, ${n}`],
  [`Digest realm="r" ${n}`],
  [`Digest realm=r, nonce=${SECRET}`],
  [`Digest realm="r, ${n}`],
  [`Digest realm="a\\"b\\\\c", ${n}, opaque="\xe9\xff"`],
  [`Digest ,,, realm="r",, ${n} ,,`],
  [`Digest realm="r", ${n}, algorithm=SHA-512-256, qop="auth-int"`],
  [`Digest realm="r", ${n}, qop="auth,auth-int", algorithm=MD5-sess, userhash=true, charset=UTF-8`],
  [`Digest realm="r", ${n}, qop="none"`],
  [`Digest realm="r", ${n}, qop=""`],
  [`Digest realm="r", ${n}, algorithm=SHA1`],
  [`Digest realm="r", ${n}, stale=maybe, domain="/a /b"`],
  [`Basic realm="r", Digest realm="r", ${n}, Bearer`],
  [`Negotiate dG9rZW4=, Digest realm="r", ${n}`],
  ['Basic realm="r"', `Digest realm="r", ${n}, algorithm=MD5`, `Digest realm="r", ${n}, algorithm=SHA-256`],
  [`Digest realm="${'r'.repeat(5_000)}", ${n}`],
  [`Digest realm="r", nonce="${SECRET.repeat(500)}"`],
  [`Digest realm="r", ${n}, opaque="${'o'.repeat(20_000)}"`],
  [`Digest realm="r", ${Array.from({ length: 500 }, (_, at) => `x${at}=y`).join(', ')}, ${n}`],
  Array.from({ length: 100 }, (_, at) => `Digest realm="r${at}", ${n}`),
  [`Digest realm="r", nonce=""`],
  [`Digest realm="", ${n}`],
  [`DigestX realm="r", ${n}`],
  [`Digest\trealm="r",\t${n}`],
];

/** Any form of 401, and what may come in its place. */
export function oddChallenge(random: Random, marker: string, method: string): Answer {
  const odd = unauthorized(random, random.pick(ODD_CHALLENGES), method, true);
  const kind = random.next();
  if (kind < 0.7) return odd;
  if (kind < 0.85) return truncated(random, odd);
  if (kind < 0.95) return mutated(random, odd);
  return cleanAnswer(random, method, marker);
}

const PROOFS = [
  'nextnonce="n"',
  `nextnonce="${SECRET}"`,
  'nextnonce=""',
  'nextnonce',
  `nextnonce="${'n'.repeat(10_000)}"`,
  'nextnonce="a", nextnonce="b"',
  'rspauth="0123456789abcdef0123456789abcdef", qop=auth, nc=00000001, cnonce="x"',
  'rspauth=""',
  'rspauth="zz"',
  'qop=auth',
  '',
  ',,,',
  '"',
  'rspauth="x',
  'nextnonce="\\"\\\\\xe9"',
  'nc=1, cnonce=y, qop="auth-int", rspauth="00"',
];

/** A good response with any form of Authentication-Info, in its head or its trailers. */
export function oddProof(random: Random, method: string, marker: string): Answer {
  const proofs = Array.from(
    { length: random.pick([1, 1, 1, 2]) },
    () => `Authentication-Info: ${random.pick(PROOFS)}\r\n`,
  ).join('');
  const content = `[${marker}]`;
  const isChunked = random.next() < 0.3;
  const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${content.length}`;
  const body = isChunked ? `${content.length.toString(16)}\r\n${content}\r\n0\r\n${proofs}\r\n` : content;
  const bytes = `HTTP/1.1 200 OK\r\nX-Marker: ${marker}\r\n${proofs}${framing}\r\n\r\n${method === 'HEAD' ? '' : body}`;
  return { bytes, ...paceOf(random, bytes.length), ending: 'keep' };
}
