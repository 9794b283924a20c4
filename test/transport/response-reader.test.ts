import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { fuzzRuns, PARSER_BYTES, RESPONSE_PARTS } from '../support/fuzz.ts';
import { type Reading, readWithGateway, readWithNode } from '../support/response-readings.ts';

const HEAD = 'HTTP/1.1 200 OK\r\n';
const CHUNKED = `${HEAD}Transfer-Encoding: chunked\r\n\r\n`;

/** Responses of each generated kind in one run; FUZZ_RUNS sets another number. */
const RUNS = fuzzRuns(2_000);

describe('a response is read', () => {
  test.each([
    ['Content-Length', `${HEAD}Content-Length: 2\r\n\r\nok`, 'ok'],
    ['Content-Length with spaces around it', `${HEAD}Content-Length:\t 2 \r\n\r\nok`, 'ok'],
    ['Content-Length with zeros before it', `${HEAD}Content-Length: 0002\r\n\r\nok`, 'ok'],
    ['Content-Length 0', `${HEAD}Content-Length: 0\r\n\r\n`, ''],
    ['chunks', `${CHUNKED}1\r\no\r\n01\r\nk\r\n0\r\n\r\n`, 'ok'],
    [
      'chunks with hexadecimal sizes',
      `${CHUNKED}00A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n`,
      '01234567890123456789',
    ],
    ['chunks with extensions', `${CHUNKED}2;a;b=c;d="e\\"; f"\r\nok\r\n0;last\r\n\r\n`, 'ok'],
    [
      'chunks with a coding before',
      `${HEAD}Transfer-Encoding: gzip\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
      'ok',
    ],
    ['chunks with LF in their bytes', `${CHUNKED}2\r\n\n\n\r\n0\r\n\r\n`, '\n\n'],
  ])('whose body has %s', (_what, bytes, body) => {
    expect(readWithGateway(bytes, {})).toMatchObject({
      result: 'whole',
      status: 200,
      body,
      isPersistent: true,
    });
  });

  test.each([
    ['neither length nor chunks', `${HEAD}\r\nok`],
    ['a coding that is not chunked at last', `${HEAD}Transfer-Encoding: chunked, gzip\r\n\r\nok`],
  ])('to the end of the connection, with %s', (_what, bytes) => {
    expect(readWithGateway(bytes, {})).toMatchObject({ result: 'partial', body: 'ok' });
    expect(readWithGateway(bytes, { ends: true })).toMatchObject({ result: 'whole', isPersistent: false });
  });

  test.each([
    ['HEAD', 'HEAD', `${HEAD}Content-Length: 2\r\n\r\n`, true],
    ['HEAD and chunks', 'HEAD', CHUNKED, true],
    ['204', 'GET', 'HTTP/1.1 204 No Content\r\n\r\n', true],
    ['204 that announces a body', 'GET', 'HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n', false],
    [
      '304 that announces chunks',
      'GET',
      'HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n',
      false,
    ],
  ])('without a body: %s', (_what, method, bytes, isPersistent) => {
    expect(readWithGateway(bytes, { method })).toMatchObject({ result: 'whole', body: '', isPersistent });
  });

  test('with its fields as they are, without the space around values', () => {
    const lines = 'X:a\r\nx:  b\t c \t\r\nY:\r\nCaf: \xe9\xa0\r\nContent-Length: 0\r\n';
    expect(readWithGateway(`${HEAD}${lines}\r\n`, {}).headers).toEqual([
      'X',
      'a',
      'x',
      'b\t c',
      'Y',
      '',
      'Caf',
      '\xe9\xa0',
      'Content-Length',
      '0',
    ]);
  });

  test.each([
    ['HTTP/1.1', '', true],
    ['HTTP/1.1', 'Connection: close', false],
    ['HTTP/1.1', 'connection: x, CLOSE', false],
    ['HTTP/1.1', 'Connection: keep-alive\r\nConnection: close', false],
    ['HTTP/1.1', 'Proxy-Connection: close', false],
    ['HTTP/1.1', 'Connection: closed', true],
    ['HTTP/1.0', '', false],
    ['HTTP/1.0', 'Connection: Keep-Alive', true],
    ['HTTP/1.0', 'Connection: keep-alive, close', false],
  ])('from %s with %j: whether the connection persists is %p', (version, lines, expected) => {
    const bytes = `${version} 200 OK\r\nContent-Length: 0\r\n${lines === '' ? '' : `${lines}\r\n`}\r\n`;
    expect(readWithGateway(bytes, {}).isPersistent).toBe(expected);
  });

  test('and its connection does not persist if HTTP/1.0 sent chunks, which it does not have', () => {
    const bytes = `HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`;
    expect(readWithGateway(bytes, {})).toMatchObject({ result: 'whole', isPersistent: false });
  });

  test('with its trailers', () => {
    const bytes = `${CHUNKED}0\r\nX-A: 1\r\nx-a: 2\r\n\r\n`;
    expect(readWithGateway(bytes, {})).toMatchObject({
      trailers: ['X-A', '1', 'x-a', '2'],
      isPersistent: true,
    });
  });

  test.each([['Connection'], ['Proxy-Connection'], ['Keep-Alive'], ['Upgrade']])(
    'and its connection does not persist if its trailers have %s',
    (name) => {
      const bytes = `${CHUNKED}0\r\n${name}: x\r\n\r\n`;
      expect(readWithGateway(bytes, {})).toMatchObject({ result: 'whole', isPersistent: false });
    },
  );

  test('and its connection does not persist if bytes follow it', () => {
    const bytes = `${HEAD}Content-Length: 2\r\n\r\nok`;
    expect(readWithGateway(`${bytes}H`, {})).toMatchObject({ body: 'ok', isPersistent: false });
    expect(readWithGateway(`${bytes}H`, { cuts: [bytes.length] })).toMatchObject({ isPersistent: false });
  });
});

describe('a response is refused', () => {
  const withHead = (lines: string): string => `${HEAD}${lines}\r\n\r\nok`;
  const long = 'a'.repeat(33_000);

  test.each([
    ['a name with a space', withHead('A b: c')],
    ['a space before the colon', withHead('A : c')],
    ['a name that is no token', withHead('A(b): c')],
    ['an empty name', withHead(': c')],
    ['a line without a colon', withHead('Abc')],
    ['a continued line', withHead('A: b\r\n c')],
    ['a continued line with a colon', withHead('A: b\r\n c: d')],
    ['NUL in a value', withHead('A: b\0c')],
    ['DEL in a value', withHead('A: b\x7fc')],
    ['CR in a value', withHead('A: b\rc')],
    ['LF in a value', withHead('A: b\nContent-Length: 2')],
    ['a line that ends without CR', 'HTTP/1.1 200 OK\r\nA: b\nContent-Length: 2\r\n\r\nok'],
    ['Content-Length twice', withHead('Content-Length: 2\r\nContent-Length: 2')],
    ['two lengths', withHead('Content-Length: 2\r\nContent-Length: 3')],
    ['a list of lengths', withHead('Content-Length: 2, 2')],
    ['an empty Content-Length', withHead('Content-Length:')],
    ['a Content-Length with a sign', withHead('Content-Length: +2')],
    ['a negative Content-Length', withHead('Content-Length: -2')],
    ['a hexadecimal Content-Length', withHead('Content-Length: 0x2')],
    ['a Content-Length with an exponent', withHead('Content-Length: 2e0')],
    ['a Content-Length with a fraction', withHead('Content-Length: 2.0')],
    ['a Content-Length that no number holds', withHead(`Content-Length: 9${'0'.repeat(20)}`)],
    ['length and chunks', withHead('Content-Length: 2\r\nTransfer-Encoding: chunked')],
    ['chunks and length', withHead('Transfer-Encoding: chunked\r\nContent-Length: 2')],
    ['a length and another coding', withHead('Transfer-Encoding: gzip\r\nContent-Length: 2')],
    ['chunks in chunks', withHead('Transfer-Encoding: chunked, chunked')],
    [
      'chunks in chunks, said on two lines',
      withHead('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked'),
    ],
    [
      'length and chunks of a 204',
      'HTTP/1.1 204 x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n',
    ],
    [
      'length and chunks of an interim response',
      `HTTP/1.1 103 x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n`,
    ],
    ['a head above 32 KiB', withHead(`A: ${long}`)],
    ['the start of a head above 32 KiB', `${HEAD}A: ${long}`],
    ['the start of something else', '<html>'],
    ['an interim response that closes the connection', 'HTTP/1.1 103 x\r\nConnection: close\r\n\r\n'],
    ['an interim response of HTTP/1.0', 'HTTP/1.0 103 x\r\n\r\n'],
    ['101', 'HTTP/1.1 101 Switching Protocols\r\n\r\n'],
    ['65 interim responses', 'HTTP/1.1 100 x\r\n\r\n'.repeat(65)],
    ['more than 64 KiB of them', `HTTP/1.1 103 x\r\nA: ${'a'.repeat(30_000)}\r\n\r\n`.repeat(3)],
  ])('that has %s', (_what, bytes) => {
    expect(readWithGateway(bytes, {})).toMatchObject({ result: 'refused', status: 0 });
  });

  test.each([
    ['no size', '\r\n'],
    ['a size with a sign', '+2\r\n'],
    ['a size with 0x', '0x2\r\n'],
    ['a space before the size', ' 2\r\n'],
    ['a space after the size', '2 \r\n'],
    ['a size that no number holds', 'fffffffffffffffff\r\n'],
    ['a size that ends without CR', '2\nok\r\n'],
    ['a CR in the line of the size', '2;\r=a\r\n'],
    ['an extension without a name', '2;\r\n'],
    ['an extension with a space', '2; a=b\r\n'],
    ['an extension that is not quoted', '2;a=b c\r\n'],
    ['a line that is too long', `2;${'a'.repeat(5_000)}\r\n`],
    ['the start of a line that is too long', `2;${'a'.repeat(5_000)}`],
    ['more bytes than it says', '2\r\noks\r\n'],
    ['an end without CR', '2\r\nok\n'],
    ['an end without LF', '2\r\nok\r0'],
    ['trailers without a colon', '0\r\nabc\r\n\r\n'],
    ['trailers that end without CR', '0\r\nA: b\n\r\n'],
    ['trailers above 32 KiB', `0\r\nA: ${long}`],
    ['Content-Length in its trailers', '0\r\nContent-Length: 2\r\n\r\n'],
    ['Transfer-Encoding in its trailers', '0\r\nTransfer-Encoding: chunked\r\n\r\n'],
    ['something else than an end after CR', '0\r\n\rx'],
  ])('whose chunk has %s', (_what, chunk) => {
    expect(readWithGateway(`${CHUNKED}${chunk}`, {}).result).toBe('refused');
  });

  test.each([
    ['its length', `Connection: close\r\nContent-Length: 3\r\n\r\nok`],
    ['its chunks', 'Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok'],
  ])('that says that it ends its connection, and ends it before %s', (_what, bytes) => {
    expect(readWithGateway(`${HEAD}${bytes}`, { ends: true }).result).toBe('refused');
  });
});

/** Field names that say something about the framing or the connection. */
const SPECIAL = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'proxy-connection',
  'keep-alive',
  'upgrade',
  'trailer',
]);

const token = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}$/);
const fieldName = fc.oneof(
  fc.constantFrom(
    'Date',
    'Server',
    'Content-Type',
    'ETag',
    'Set-Cookie',
    'WWW-Authenticate',
    'X-Content-Length',
  ),
  token.filter((name) => !SPECIAL.has(name.toLowerCase())),
);
const fieldText = fc.stringMatching(/^(?:[!-~\xa1-\xff](?:[\t -~\xa0-\xff]{0,30}[!-~\xa1-\xff])?)?$/);
const space = fc.constantFrom('', ' ', '\t', '  ', ' \t ');
const fieldLine = fc
  .tuple(fieldName, space, fieldText, space)
  .map(([name, before, value, after]) => `${name}:${before}${value}${after}\r\n`);
const fieldLinesOf = fc.array(fieldLine, { maxLength: 6 });
const octets = fc.string({
  unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
  maxLength: 40,
});
const extension = fc.oneof(
  token.map((name) => `;${name}`),
  fc.tuple(token, token).map(([name, value]) => `;${name}=${value}`),
  fc.tuple(token, fc.stringMatching(/^[ !#-[\]-~]{0,10}$/)).map(([name, value]) => `;${name}="${value}"`),
);
const chunk = fc
  .tuple(
    octets.filter((bytes) => bytes !== ''),
    fc.array(extension, { maxLength: 2 }),
    fc.nat({ max: 3 }),
  )
  .map(([bytes, extensions, zeros]) => {
    const size = `${'0'.repeat(zeros)}${bytes.length.toString(16)}`;
    return `${size}${extensions.join('')}\r\n${bytes}\r\n`;
  });

/** A body with the lines that announce it; `closes`: it ends with its connection. */
interface Body {
  readonly lines: readonly string[];
  readonly bytes: string;
  readonly closes: boolean;
}

const body: fc.Arbitrary<Body> = fc.oneof(
  octets.map((bytes) => ({ lines: [`Content-Length: ${bytes.length}\r\n`], bytes, closes: false })),
  fc.tuple(fc.array(chunk, { maxLength: 4 }), fieldLinesOf).map(([chunks, trailers]) => ({
    lines: ['Transfer-Encoding: chunked\r\n'],
    bytes: `${chunks.join('')}0\r\n${trailers.join('')}\r\n`,
    closes: false,
  })),
  octets.map((bytes) => ({ lines: [], bytes, closes: true })),
);

const interim = fc
  .tuple(fc.constantFrom(100, 102, 103, 199), fieldLinesOf)
  .map(([status, lines]) => `HTTP/1.1 ${status} Interim\r\n${lines.join('')}\r\n`);

interface Message {
  readonly method: string;
  readonly bytes: string;
  /** True if the connection ends after the bytes. */
  readonly ends: boolean;
}

const message: fc.Arbitrary<Message> = fc
  .record({
    method: fc.constantFrom('GET', 'GET', 'POST', 'HEAD'),
    before: fc.array(interim, { maxLength: 2 }),
    version: fc.constantFrom('1.1', '1.1', '1.0'),
    status: fc.oneof(fc.constantFrom(200, 204, 304, 401, 500), fc.integer({ min: 200, max: 999 })),
    reason: fc.option(fc.stringMatching(/^[ -~]{0,20}$/), { nil: undefined }),
    lines: fieldLinesOf,
    options: fc.constantFrom(
      '',
      '',
      'Connection: close\r\n',
      'connection: Keep-Alive\r\n',
      'Connection: x, close\r\n',
    ),
    body,
    place: fc.nat(),
  })
  .map(
    ({
      method,
      before,
      version,
      status,
      reason,
      lines,
      options,
      body: { lines: framing, bytes, closes },
      place,
    }) => {
      const fields = [...lines, options];
      fields.splice(place % fields.length, 0, ...framing);
      const line = `HTTP/${version} ${status}${reason === undefined ? '' : ` ${reason}`}\r\n`;
      const hasBody = method !== 'HEAD' && status !== 204 && status !== 304;
      return {
        method,
        bytes: `${before.join('')}${line}${fields.join('')}\r\n${hasBody ? bytes : ''}`,
        ends: closes && hasBody,
      };
    },
  );

const spice = fc.constantFrom(...PARSER_BYTES, ...RESPONSE_PARTS);

type Mutation = (bytes: string) => string;

const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  fc.tuple(fc.nat(), spice).map(
    ([at, text]) =>
      (bytes: string) =>
        spliced(bytes, at, 0, text),
  ),
  fc.tuple(fc.nat(), spice).map(
    ([at, text]) =>
      (bytes: string) =>
        spliced(bytes, at, text.length, text),
  ),
  fc.tuple(fc.nat(), fc.integer({ min: 1, max: 8 })).map(
    ([at, count]) =>
      (bytes: string) =>
        spliced(bytes, at, count, ''),
  ),
  fc.tuple(fc.nat(), fc.nat({ max: 255 })).map(
    ([at, code]) =>
      (bytes: string) =>
        spliced(bytes, at, 1, String.fromCharCode(code)),
  ),
  fc.nat().map((at) => (bytes: string) => bytes.slice(0, at % (bytes.length + 1))),
  // A line is said twice, or goes.
  fc.nat().map((at) => (bytes: string) => {
    const lines = bytes.split('\r\n');
    const index = at % lines.length;
    return lines.toSpliced(index, 0, lines[index] ?? '').join('\r\n');
  }),
  fc.nat().map((at) => (bytes: string) => {
    const lines = bytes.split('\r\n');
    return lines.toSpliced(at % lines.length, 1).join('\r\n');
  }),
);

function spliced(bytes: string, at: number, count: number, text: string): string {
  const from = at % (bytes.length + 1);
  return bytes.slice(0, from) + text + bytes.slice(from + count);
}

const mutated: fc.Arbitrary<Message> = fc
  .tuple(message, fc.array(mutation, { minLength: 1, maxLength: 3 }), fc.boolean())
  .map(([{ method, bytes }, mutations, ends]) => ({
    method,
    bytes: mutations.reduce((text, mutate) => mutate(text), bytes),
    ends,
  }));

// Two kinds of responses are read otherwise than by Node.js on purpose.
/** A 100 (Continue) is skipped, whatever it says; Node.js reads nothing after one with "Connection: close". */
const CONTINUE = /HTTP\/1\.[01] 100/;
/** A tab may follow a coding (RFC 9110 §5.6.3); Node.js does not know "chunked" before one. */
const TAB_AFTER_CODING = /transfer-encoding:[^\r\n]*\t/i;

const cuts = fc.array(fc.nat({ max: 600 }), { maxLength: 12 });

/** The parts of a reading in which two readers must agree. */
function contentOf({ interim: found, status, headers, body: bytes, trailers }: Reading): unknown {
  return { interim: found, status, headers, body: bytes, trailers };
}

describe('a generated response', () => {
  test('is read as Node.js reads it', () => {
    fc.assert(
      fc.property(message, ({ bytes, ...how }) => {
        const [ours, nodes] = [readWithGateway(bytes, how), readWithNode(bytes, how)];
        expect([ours.result, nodes.result]).toEqual(['whole', 'whole']);
        expect(contentOf(ours)).toEqual(contentOf(nodes));
        expect(ours.reason).toBe(nodes.reason);
      }),
      { numRuns: RUNS },
    );
  });

  test('is the same in any pieces, valid or not', () => {
    fc.assert(
      fc.property(fc.oneof(message, mutated), cuts, ({ bytes, ...how }, places) => {
        const cutAt = places.filter((place) => place <= bytes.length);
        expect(readWithGateway(bytes, { ...how, cuts: cutAt })).toEqual(readWithGateway(bytes, how));
      }),
      { numRuns: RUNS },
    );
  });

  test('is the same byte by byte', () => {
    fc.assert(
      fc.property(fc.oneof(message, mutated), ({ bytes, ...how }) => {
        const each = Array.from(bytes, (_, at) => at);
        expect(readWithGateway(bytes, { ...how, cuts: each })).toEqual(readWithGateway(bytes, how));
      }),
      { numRuns: Math.ceil(RUNS / 4) },
    );
  });

  // The reader refuses more than Node.js: see "a response is refused". It must not refuse less.
  test('that was mutated is refused if Node.js refuses it, and read as Node.js reads it if not', () => {
    fc.assert(
      fc.property(mutated, ({ bytes, ...how }) => {
        const ours = readWithGateway(bytes, how);
        if (ours.result !== 'whole') return;
        const nodes = readWithNode(bytes, how);
        if (TAB_AFTER_CODING.test(bytes)) return;
        if (nodes.result !== 'whole' && CONTINUE.test(bytes)) return;
        expect(nodes.result).toBe('whole');
        expect(contentOf(ours)).toEqual(contentOf(nodes));
        if (ours.isPersistent) expect(nodes.isPersistent || how.method === 'HEAD').toBe(true);
      }),
      { numRuns: RUNS * 4 },
    );
  });

  test('of any bytes is an error at most', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(spice, octets), { maxLength: 30 }), cuts, (parts, places) => {
        const bytes = parts.join('');
        readWithGateway(bytes, { cuts: places.filter((place) => place <= bytes.length), ends: true });
      }),
      { numRuns: RUNS },
    );
  });
});
