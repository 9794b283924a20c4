import type { Random } from '../simulation/random.ts';
import { CLOSED_PATH, LARGEST_BODY, OPEN_PREFIX } from './rules.ts';

/** One request of a client. Text is Latin-1. */
export interface Message {
  readonly bytes: string;
  /**
   * `served`: the upstream's response. `refused`: a problem document. Both only if the message is read as it is meant.
   */
  readonly expects: 'served' | 'refused' | 'anything';
}

/** Names a message: it stands in its target, and is its request id. */
export function tagOf(seed: number, index: number): string {
  return `s${seed}m${index}`;
}

interface Target {
  readonly text: string;
  readonly expects: Message['expects'];
}

interface Content {
  readonly lines: readonly string[];
  readonly bytes: string;
  readonly expects?: Message['expects'];
}

/** A message that follows the rules of HTTP, most of which are served. */
export function message(random: Random, tag: string, host: string): Message {
  const method = random.pick(METHODS);
  const version = random.next() < 0.06 ? '1.0' : '1.1';
  const target = targetOf(random, tag, host, method);
  const content = contentOf(random, method, version);
  const lines = [
    ...(random.next() < 0.7 ? [`X-Request-Id: ${tag}`] : []),
    ...Array.from({ length: random.whole(0, 5) }, () => fieldOf(random)),
    ...content.lines,
    ...connectionOf(random, version),
  ];
  lines.splice(random.next() < 0.8 ? 0 : random.whole(0, lines.length), 0, hostOf(random, host));
  const head = `${method} ${target.text} HTTP/${version}\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
  const isRefused = target.expects === 'refused' || content.expects === 'refused';
  return { bytes: head + content.bytes, expects: isRefused ? 'refused' : target.expects };
}

const METHODS = [
  'GET',
  'GET',
  'GET',
  'GET',
  'HEAD',
  'POST',
  'POST',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
];

/** Characters of paths and queries that no server takes for something else. */
const PLAIN = [...'abcXYZ019-_.~!$&()*+,=:@', '%20', '%C3%A9', '%c3%a9', '%27', '/a/', '/b'];
/** And such that servers differ about. */
const ODD = [
  ...`;'"<>[]{}|^\`\\%`,
  '//',
  '/./',
  '/../',
  '%2e',
  '%2F',
  '%00',
  '%0d%0a',
  '%25',
  '%zz',
  '..',
  '%5c',
  '%c0%ae',
];

function targetOf(random: Random, tag: string, host: string, method: string): Target {
  const kind = random.next();
  if (kind < 0.07) return closedTarget(random, tag, method);
  if (kind < 0.1) return { text: random.pick(NOT_ROUTED)(tag), expects: 'refused' };
  const isOdd = random.next() < 0.2;
  let path = `${OPEN_PREFIX}${tag}`;
  for (let left = random.whole(0, 12); left > 0; left -= 1)
    path += random.pick(isOdd ? [...PLAIN, ...ODD] : PLAIN);
  let query = random.next() < 0.6 ? '?' : '';
  if (query !== '')
    for (let left = random.whole(0, 20); left > 0; left -= 1)
      query += random.pick([...PLAIN, ...ODD, '?', '&a=']);
  const form = random.next() < 0.12 ? `${random.pick(['http://', 'https://', 'HTTP://'])}${host}` : '';
  return { text: `${form}${path}${query}`, expects: isOdd ? 'anything' : 'served' };
}

/** Targets of the deployment that serves one operation only. */
function closedTarget(random: Random, tag: string, method: string): Target {
  const query = `?tag=${tag}`;
  if (random.next() < 0.4) {
    return {
      text: `${CLOSED_PATH}${query}`,
      expects: method === 'GET' || method === 'HEAD' ? 'served' : 'refused',
    };
  }
  const near = [
    '/closed/items/',
    '/closed/Items',
    '/closed/items;x',
    '/closed/./items',
    '/closed/items%00',
    '/closed/%69tems',
    '/closed/',
    '/closed//items',
    '/closed/other',
    '/closed/../closed/items',
    '/closed/items/..',
  ];
  return { text: `${random.pick(near)}${query}`, expects: 'refused' };
}

const NOT_ROUTED: readonly ((tag: string) => string)[] = [
  () => '*',
  (tag) => `${OPEN_PREFIX}${tag}#x`,
  (tag) => `/elsewhere/${tag}`,
  (tag) => `/opened/${tag}`,
  (tag) => `http://other.example/open/${tag}`,
  (tag) => `http://user@other.example/open/${tag}`,
  (tag) => `ftp://other.example/open/${tag}`,
  (tag) => `other.example:443/${tag}`,
  (tag) => `http:///open/${tag}`,
  (tag) => `${OPEN_PREFIX}../closed/${tag}`,
  (tag) => `${OPEN_PREFIX}%2e%2e/closed/${tag}`,
  (tag) => `${OPEN_PREFIX}x/..\\..\\closed/${tag}`,
];

function hostOf(random: Random, host: string): string {
  const name = random.pick(['Host', 'Host', 'host', 'HOST']);
  const value = random.pick([host, host, 'x', 'gateway.internal:8080', '[::1]:80', 'a.b.c.', '127.0.0.1']);
  return `${name}:${random.pick([' ', ' ', '', '\t', '   '])}${value}`;
}

const NAMES = [
  'X-A',
  'x-b',
  'Accept',
  'Accept-Encoding',
  'User-Agent',
  'Referer',
  'X-Forwarded-For',
  'Forwarded',
  'Cookie',
  'Authorization',
  'Proxy-Authorization',
  'X-Api-Key',
  'TE',
  'Trailer',
  'Upgrade',
  'Keep-Alive',
  'Proxy-Connection',
  'Content-Type',
  'If-None-Match',
  'Range',
  'Via',
  'Max-Forwards',
  'X_A',
  'Transfer_Encoding',
  'Content_Length',
  "!#$%&'*+-.^`|~9",
  'traceparent',
  'Date',
  'Priority',
];
const VALUES = [
  '',
  'a',
  'a, b',
  'chunked',
  'close',
  '"quoted \\" text"',
  'caf\xe9',
  '\x80\xff',
  'a\tb',
  '0',
  'http://x/?y',
  'x'.repeat(300),
  'bytes=0-1',
  'Basic eDp5',
  'trailers',
  'h2c',
  'for=1.2.3.4',
];

function fieldOf(random: Random): string {
  const space = [' ', '', '\t', '  '];
  return `${random.pick(NAMES)}:${random.pick(space)}${random.pick(VALUES)}${random.pick(['', '', ' ', '\t'])}`;
}

function connectionOf(random: Random, version: string): string[] {
  const kind = random.next();
  if (kind < 0.04) return ['Connection: close'];
  if (version === '1.0') return kind < 0.7 ? ['Connection: keep-alive'] : [];
  if (kind < 0.15)
    return [
      random.pick([
        'Connection: keep-alive',
        'connection: x-a',
        'Connection: content-length',
        'Connection: TE, x-b',
        'Connection: close-not',
        'Connection: keep-alive, host',
        'Connection:',
      ]),
    ];
  return [];
}

function contentOf(random: Random, method: string, version: string): Content {
  const mayHave = method === 'POST' || method === 'PUT' || method === 'PATCH' || random.next() < 0.05;
  if (!mayHave) return { lines: [], bytes: '' };
  const body = bodyOf(random);
  const expects = body.length > LARGEST_BODY ? { expects: 'refused' as const } : {};
  const expectation = version === '1.1' && random.next() < 0.08 ? ['Expect: 100-continue'] : [];
  if (random.next() < 0.5 || version === '1.0') {
    const length = random.next() < 0.1 ? `00${body.length}` : `${body.length}`;
    return {
      lines: [`${random.pick(['Content-Length', 'content-length'])}: ${length}`, ...expectation],
      bytes: body,
      ...expects,
    };
  }
  const coding = random.pick([
    'Transfer-Encoding: chunked',
    'transfer-encoding: Chunked',
    'Transfer-Encoding:chunked',
  ]);
  return { lines: [coding, ...expectation], bytes: chunked(random, body), ...expects };
}

/** Sizes around those at which the gateway does something else. */
const SIZES = [0, 1, 2, 5, 17, 100, 1_000, 4_095, 4_096, 4_097, 9_000, 20_000];

function bodyOf(random: Random): string {
  const size =
    random.next() < 0.004
      ? LARGEST_BODY + random.whole(-1, 2)
      : random.pick(random.next() < 0.8 ? SIZES.slice(0, 7) : SIZES);
  // A body that looks like requests.
  if (size < 200 && random.next() < 0.3)
    return 'GET /closed/body HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(4).slice(0, size);
  return random.pick(['x', '0\r\n\r\n', '\r\n', '\xff\0', 'ab\n']).repeat(size).slice(0, size);
}

function chunked(random: Random, body: string): string {
  let text = '';
  for (let at = 0; at < body.length; ) {
    const size = random.whole(
      1,
      Math.max(1, Math.min(body.length - at, random.pick([1, 10, 5_000, 100_000]))),
    );
    // Thousands of chunks of one byte take long.
    const taken = body.length > 300 ? Math.max(size, Math.ceil(body.length / 40)) : size;
    const piece = body.slice(at, at + taken);
    at += piece.length;
    text += `${random.pick(['', '', '0', '000'])}${sizeOf(random, piece.length)}${extensionOf(random)}\r\n${piece}\r\n`;
  }
  return `${text}${random.pick(['0', '0', '000'])}${extensionOf(random)}\r\n${random.pick(TRAILERS)}\r\n`;
}

function sizeOf(random: Random, size: number): string {
  const digits = size.toString(16);
  return random.next() < 0.3 ? digits.toUpperCase() : digits;
}

function extensionOf(random: Random): string {
  return random.next() < 0.85
    ? ''
    : random.pick([';a', ';a=b', ';a="b c"', ';a;b;c=d', `;${'e'.repeat(200)}`]);
}

const TRAILERS = ['', '', '', 'X-T: 1\r\n', 'Authorization: Basic eDp5\r\n', 'X-T: 1\r\nx-t:\t\xff \r\n'];
