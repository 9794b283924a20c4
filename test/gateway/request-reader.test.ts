import { createRequire } from 'node:module';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { readRequests } from '../../lab/wire/request-reading.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { type RequestHead, RequestReader } from '../../src/gateway/request-reader.ts';
import { fuzzRuns, PARSER_BYTES, REQUEST_PARTS } from '../support/fuzz.ts';
import { cpuMeter } from '../support/measure.ts';
import { HTTPParser } from '../support/response-readings.ts';
import { SMUGGLING_SHAPES } from '../support/smuggling-shapes.ts';

const { methods }: { methods: readonly string[] } = createRequire(import.meta.url)('node:_http_common');
const MOST_HEAD = 4 * 1024;

interface Read {
  readonly head: RequestHead;
  body: string;
  isWhole: boolean;
}

interface Reading {
  readonly requests: Read[];
  /** Code and detail of the error that ended it. */
  readonly refused: readonly [code: string, detail: string] | undefined;
  readonly isBetween: boolean;
}

/** Reads the bytes, cut at these places, as a connection does. */
function read(bytes: string, cuts: readonly number[] = []): Reading {
  const requests: Read[] = [];
  const last = (): Read => requests.at(-1) as Read;
  const reader = new RequestReader(MOST_HEAD, {
    onHead: (head) => {
      if (head.refusal !== undefined) throw head.refusal;
      requests.push({ head, body: '', isWhole: head.body === 0 });
    },
    onData: (chunk) => {
      expect(chunk.length).toBeGreaterThan(0);
      last().body += chunk.toString('latin1');
    },
    onEnd: () => {
      last().isWhole = true;
    },
  });
  const places = [...new Set([...cuts, bytes.length])].filter((at) => at > 0 && at <= bytes.length);
  let from = 0;
  try {
    for (const place of places.sort((one, other) => one - other)) {
      const chunk = Buffer.from(bytes.slice(from, place), 'latin1');
      for (let at = 0; at < chunk.length; ) {
        const next = reader.read(chunk, at);
        expect(next).toBeGreaterThan(at);
        // It stops behind each request, so that nothing behind it is read before its response.
        if (next < chunk.length) expect(last().isWhole || reader.isBetween).toBe(true);
        at = next;
      }
      from = place;
    }
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    return { requests, refused: [error.code, error.detail], isBetween: false };
  }
  return { requests, refused: undefined, isBetween: reader.isBetween };
}

const HOST = 'Host: x\r\n';
const codeOf = (bytes: string): string | undefined => read(bytes).refused?.[0];
const post = (lines: string, body: string): string => `POST / HTTP/1.1\r\n${HOST}${lines}\r\n${body}`;
const CHUNKED = 'Transfer-Encoding: chunked\r\n';

describe('a head', () => {
  test('has what was sent, byte for byte', () => {
    const [request] = read(
      'GET /a%27b?c=%2f HTTP/1.1\r\nX-b: 2\r\nHOST:x\r\nx-B: \tcaf\xe9 \t\r\nE:\r\n\r\n',
    ).requests;
    expect(request?.head).toEqual({
      method: 'GET',
      target: '/a%27b?c=%2f',
      httpVersion: '1.1',
      headers: ['X-b', '2', 'HOST', 'x', 'x-B', 'caf\xe9', 'E', ''],
      body: 0,
      isPersistent: true,
      expectsContinue: false,
      refusal: undefined,
    });
  });

  test.each([
    ['1.1', '', true],
    ['1.1', 'Connection: close\r\n', false],
    ['1.1', 'Connection: x-mine ,\tCLOSE ,y\r\n', false],
    ['1.1', 'Connection: keep-alive\r\nConnection: close\r\n', false],
    ['1.1', 'Connection: close-not, not-close\r\n', true],
    ['1.0', '', false],
    ['1.0', 'Connection: Keep-Alive\r\n', true],
    ['1.0', 'Connection: keep-alive, close\r\n', false],
  ])('HTTP/%s with %j keeps the connection: %s', (version, lines, isPersistent) => {
    const [request] = read(`GET / HTTP/${version}\r\n${lines}\r\n`).requests;
    expect(request?.head.isPersistent).toBe(isPersistent);
  });

  test('of HTTP/1.0 to a proxy is the last of its connection', () => {
    const [request] = read('GET http://x/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n').requests;
    expect(request?.head.isPersistent).toBe(false);
  });

  test.each([
    ['1.1', '100-continue', true],
    ['1.1', '100-Continue', true],
    ['1.1', 'x, 100-continue', true],
    ['1.1', 'x 100-continue', false],
    ['1.1', '200-ok', false],
    ['1.0', '100-continue', false],
  ])('HTTP/%s with Expect: %s waits: %s', (version, expectation, waits) => {
    const head = `POST / HTTP/${version}\r\nExpect: ${expectation}\r\nContent-Length: 1\r\n\r\nx`;
    expect(read(head).requests[0]?.head.expectsContinue).toBe(waits);
  });

  test.each(['\r\n', '\r\n\r\n\r\n'])('may follow empty lines: %j', (lines) => {
    const { requests, isBetween } = read(`${lines}GET / HTTP/1.1\r\n\r\n${lines}\r`);
    expect([requests.length, isBetween]).toEqual([1, true]);
  });

  test.each([['\n'], [' '], ['\r\r\n'], ['x'], ['{'], ['\x16\x03\x01'], ['GET\t'], ['G\0T ']])(
    'is refused at its first bytes, without waiting for its end: %j',
    (bytes) => {
      expect(codeOf(bytes)).toBe('bad-request');
    },
  );

  test.each([
    'SMUGGLE / HTTP/1.1\r\n\r\n',
    'SOURCE / HTTP/1.1\r\n\r\n',
    'A'.repeat(21),
    `${'A'.repeat(21)} / HTTP/2.0\r\n\r\n`,
  ])('is not implemented with the method of %j', (bytes) => {
    expect(codeOf(bytes)).toBe('not-implemented');
    expect(read(bytes, [3, 22]).refused?.[0]).toBe('not-implemented');
  });

  test('is malformed rather than of an unknown method, however its bytes are cut', () => {
    const bytes = 'SMUGGLE / HTTP/1.1\r\nA: b\n\r\nC: d\r\n\r\n';
    for (let at = 1; at < bytes.length; at += 1) expect(read(bytes, [at]).refused?.[0]).toBe('bad-request');
    expect(codeOf(bytes)).toBe('bad-request');
  });

  test.each(['G', 'GET', 'GET ', 'GET /', 'VERSION-CONTROL /x HTTP/1.1\r\nA', '\r', '\r\n\r\n\r'])(
    'is waited for after %j',
    (bytes) => {
      const { requests, refused } = read(bytes);
      expect([requests.length, refused]).toEqual([0, undefined]);
    },
  );

  test.each([
    [`GET /${'a'.repeat(MOST_HEAD)}`, 'target-too-long'],
    [`GET /${'a'.repeat(MOST_HEAD)} HTTP/1.1\r\n\r\n`, 'target-too-long'],
    [`GET / HTTP/1.1\r\nA: ${'a'.repeat(MOST_HEAD)}`, 'headers-too-large'],
    [`GET / HTTP/1.1\r\n${'A: b\r\n'.repeat(MOST_HEAD / 6)}\r\n`, 'headers-too-large'],
  ])('is refused if it is too large (%#)', (bytes, code) => {
    expect(codeOf(bytes)).toBe(code);
    expect(read(bytes, [100, 5_000]).refused?.[0]).toBe(code);
  });

  test('of the largest size is read', () => {
    const line = 'GET / HTTP/1.1\r\nA: ';
    const { requests } = read(`${line}${'a'.repeat(MOST_HEAD - line.length - 4)}\r\n\r\n`);
    expect(requests.length).toBe(1);
  });

  test('that comes byte by byte costs little', () => {
    const cpuMs = cpuMeter();
    const bytes = `GET / HTTP/1.1\r\n${'A: b\r\n'.repeat(600)}\r\n`;
    expect(
      read(
        bytes,
        Array.from(bytes, (_, at) => at),
      ).requests.length,
    ).toBe(1);
    expect(cpuMs()).toBeLessThan(2_000);
  });
});

describe('a body', () => {
  test.each(['chunked', 'Chunked', 'CHUNKED', '\tchunked '])(
    'has chunks with Transfer-Encoding: %j',
    (coding) => {
      const { requests, isBetween } = read(
        post(
          `Transfer-Encoding: ${coding}\r\n`,
          '5;a="b;c"\r\nhello\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\n',
        ),
      );
      expect(requests).toMatchObject([{ body: 'hello0123456789', isWhole: true, head: { body: 'chunked' } }]);
      expect(isBetween).toBe(true);
    },
  );

  test.each(['0', '000'])('is none with Content-Length: %s', (length) => {
    expect(read(post(`Content-Length: ${length}\r\n`, '')).requests).toMatchObject([
      { isWhole: true, head: { body: 0 } },
    ]);
  });

  test.each([
    'chunked, identity',
    'chunked, chunked',
    'chunked , gzip, chunked',
    'gzip, chunked;q=1',
    'identity',
    'xchunked',
    'chunked;q=1',
    '"chunked"',
    '',
    ',chunked',
    'chunked\r\nTransfer-Encoding: chunked',
  ])('is refused with Transfer-Encoding: %j', (coding) => {
    expect(codeOf(post(`Transfer-Encoding: ${coding}\r\n`, '0\r\n\r\n'))).toBe('bad-request');
  });

  test.each(['gzip, chunked', 'x,Chunked', 'chunked-x , gzip,chunked'])(
    'is not implemented with Transfer-Encoding: %j',
    (coding) => expect(codeOf(post(`Transfer-Encoding: ${coding}\r\n`, '0\r\n\r\n'))).toBe('not-implemented'),
  );

  test.each([
    '',
    '-1',
    '+1',
    '1.0',
    '0x1',
    '1e0',
    '1 1',
    '1,1',
    '"1"',
    '9007199254740992',
    '1\r\nContent-Length: 1',
  ])('is refused with Content-Length: %j', (length) => {
    expect(codeOf(post(`Content-Length: ${length}\r\n`, 'x'))).toBe('bad-request');
  });

  test.each([[`${CHUNKED}Content-Length: 5\r\n`], [`Content-Length: 5\r\n${CHUNKED}`]])(
    'is refused with both: %j',
    (lines) => expect(codeOf(post(lines, '0\r\n\r\n'))).toBe('bad-request'),
  );

  test('has no chunks in HTTP/1.0', () => {
    expect(codeOf(`POST / HTTP/1.0\r\n${CHUNKED}\r\n0\r\n\r\n`)).toBe('bad-request');
  });

  test.each(['Content-Length: 5', 'content-length: 5', 'Transfer-Encoding: chunked', 'Connection: close'])(
    'is refused with the trailer %s',
    (line) => expect(codeOf(post(CHUNKED, `0\r\n${line}\r\n\r\n`))).toBe('bad-request'),
  );

  test('is refused with trailers that are too large', () => {
    expect(codeOf(post(CHUNKED, `0\r\n${'A: b\r\n'.repeat(MOST_HEAD / 6 + 1)}`))).toBe('headers-too-large');
  });

  test('is passed on as far as it has come', () => {
    const { requests, isBetween } = read(post('Content-Length: 9\r\n', 'hello'));
    expect(requests).toMatchObject([{ body: 'hello', isWhole: false }]);
    expect(isBetween).toBe(false);
  });
});

describe('each way to smuggle a request', () => {
  const smuggled = { path: '/seen', host: 'x', hidden: `GET /hidden HTTP/1.1\r\n${HOST}\r\n` };

  test.each(SMUGGLING_SHAPES)('$name ($reading)', ({ reading, bytes }) => {
    const text = bytes(smuggled);
    const { requests, refused } = read(text);
    const targets = requests.filter(({ isWhole }) => isWhole).map(({ head }) => head.target);
    if (reading === 'refused') {
      // Host is judged behind the reader.
      if (!/host/i.test(text.slice(0, 60)) || refused !== undefined) expect(targets).not.toContain('/hidden');
    } else {
      expect(refused).toBeUndefined();
      expect(requests[0]?.head.target).toBe('/seen');
      if (reading === 'next') expect(targets).toEqual(['/seen', '/hidden']);
      else if (requests[0]?.head.isPersistent === true) expect(targets).toEqual(['/seen']);
    }
  });
});

/** Requests that Node's own parser reads whole, as strict as it can be: method, target, fields and body. */
function readWithNode(bytes: string): unknown[] {
  const whole: unknown[] = [];
  let [head, body, more, url]: [unknown[], string, string[], string] = [[], '', [], ''];
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {}, 10_000_000, HTTPParser.kLenientNone);
  // After trailers, the target of the next request comes this way.
  parser[HTTPParser.kOnHeaders] = (fields: string[], target: string) => {
    more.push(...fields);
    url = target;
    return 0;
  };
  parser[HTTPParser.kOnHeadersComplete] = (...args: unknown[]) => {
    const [, , fields = [], method, target] = args as [
      ...[number, number, string[] | undefined, number, string | undefined],
    ];
    head = [methods[method], target ?? url, [...more, ...fields]];
    more = [];
    return 0;
  };
  parser[HTTPParser.kOnBody] = (chunk: Buffer) => {
    body += chunk.toString('latin1');
    return 0;
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    whole.push([...head, body]);
    [body, more] = ['', []];
    return 0;
  };
  parser.execute(Buffer.from(bytes, 'latin1'));
  parser.close();
  return whole;
}

const request = fc.constantFrom(
  `GET /a HTTP/1.1\r\n${HOST}\r\n`,
  'GET /b?c=%27 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n',
  post('Content-Length: 5\r\n', 'hello'),
  post('Content-Length: 8\r\n', '\r\n\r\n\r\n\r\n'),
  post(CHUNKED, '0\r\n\r\n'),
  post(CHUNKED, '5;a=b\r\nhello\r\n2\r\n\r\n\r\n0\r\nA: b\r\n\r\n'),
  post(CHUNKED, '8\r\n0\r\n\r\n0\r\n\r\n0\r\n\r\n'),
  '\r\n',
);
const spice = fc.constantFrom(...PARSER_BYTES, ...REQUEST_PARTS);
const damage = fc.record({ at: fc.nat(), gone: fc.nat({ max: 6 }), put: fc.option(spice, { nil: '' }) });

/** Requests one behind the other, most of them damaged somewhere. */
const conversation = fc
  .tuple(fc.array(request, { minLength: 1, maxLength: 5 }), fc.array(damage, { maxLength: 3 }))
  .map(([requests, damages]) =>
    damages.reduce((bytes, { at, gone, put }) => {
      const from = at % (bytes.length + 1);
      return bytes.slice(0, from) + put + bytes.slice(from + gone);
    }, requests.join('')),
  );
/** A tab may follow a coding (RFC 9110 §5.6.3); Node.js does not know "chunked" before one. */
const TAB_AFTER_CODING = /transfer-encoding:[^\r\n]*\t/i;
const RUNS = fuzzRuns(3_000);

describe('a conversation', () => {
  test('is the same however its bytes are cut', () => {
    fc.assert(
      fc.property(conversation, fc.array(fc.nat(600), { maxLength: 20 }), (bytes, cuts) => {
        const [cut, whole] = [read(bytes, cuts), read(bytes)];
        // A malformed request may be seen to be so in another place.
        expect({ ...cut, refused: cut.refused?.[0] }).toEqual({ ...whole, refused: whole.refused?.[0] });
      }),
      { numRuns: RUNS },
    );
  });

  test('has the requests that RFC 9112 has in it, or fewer, and no other', () => {
    fc.assert(
      fc.property(conversation, (bytes) => {
        const ours = wholeOf(bytes).map(({ head, body }) => [head.method, head.target, body]);
        const theirs = readRequests(bytes).requests;
        expect(ours).toEqual(
          theirs.slice(0, ours.length).map(({ method, target, body }) => [method, target, body]),
        );
      }),
      { numRuns: RUNS },
    );
  });

  test('has the requests that Node.js reads in it, or fewer, and no other', () => {
    fc.assert(
      fc.property(conversation, (bytes) => {
        fc.pre(!TAB_AFTER_CODING.test(bytes));
        const whole = wholeOf(bytes);
        // Behind the reader, such a target is refused, or is one of an absolute form.
        const other = whole.findIndex(({ head }) => !head.target.startsWith('/'));
        const judged = other === -1 ? whole : whole.slice(0, other);
        const ours = judged.map(({ head, body }) => [head.method, head.target, head.headers, body]);
        expect(ours).toEqual(readWithNode(bytes).slice(0, ours.length));
      }),
      { numRuns: RUNS },
    );
  });

  /** The whole requests up to the last one of the connection. */
  function wholeOf(bytes: string): Read[] {
    const whole = read(bytes).requests.filter(({ isWhole }) => isWhole);
    const last = whole.findIndex(({ head }) => !head.isPersistent);
    return last === -1 ? whole : whole.slice(0, last + 1);
  }
});
