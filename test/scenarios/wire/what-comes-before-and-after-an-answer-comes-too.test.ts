import { describe, expect, test } from '@jest/globals';
import { type RawAnswer, valuesOf } from '../../support/raw-answer.ts';
import { codeOf, useClients, useReplies, useWire } from '../../support/wire.ts';

const wire = useWire();
const connect = useClients();
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const raw = useReplies();

/** Every answer to one request, the interim ones too. */
async function answers(answer: string, version = '1.1', method = 'GET'): Promise<RawAnswer[]> {
  const client = await connect(raw.reply(answer));
  await client.send(`${method} / HTTP/${version}\r\nHost: x\r\n\r\n`);
  const all: RawAnswer[] = [];
  do all.push(await client.answer(method));
  while ((all.at(-1)?.status ?? 0) < 200);
  return all;
}

describe('interim answers', () => {
  test('103 of the service, after the challenge', async () => {
    const client = await wire.connect();
    await client.send('GET /early-hints HTTP/1.1\r\nHost: x\r\n\r\n');
    const early = await client.answer();
    expect([early.status, valuesOf(early, 'link')]).toEqual([103, ['</style.css>; rel=preload']]);
    const last = await client.answer();
    expect([last.status, last.body.toString()]).toEqual([200, 'after 103\n']);
  });

  test('several, each with all its lines, less those for the gateway alone', async () => {
    const interim = [
      'HTTP/1.1 102 Processing\r\n\r\n',
      'HTTP/1.1 103 Early Hints\r\nLink: <a>; rel=preload\r\nX-L: caf\xe9\r\nSet-Cookie: a=b\r\n',
      'Link: <b>; rel=preload\r\nConnection: X-Mine\r\nX-Mine: 1\r\n\r\n',
    ];
    const [processing, early, last] = await answers(`${interim.join('')}${OK}`);
    expect(processing).toMatchObject({ status: 102, headers: [] });
    expect(early).toMatchObject({
      status: 103,
      headers: [
        ['Link', '<a>; rel=preload'],
        ['X-L', 'caf\xe9'],
        ['Link', '<b>; rel=preload'],
      ],
    });
    expect(last).toMatchObject({ status: 200 });
  });

  test('are kept from a client of HTTP/1.0, which knows none', async () => {
    const all = await answers(`HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n${OK}`, '1.0');
    expect(all.map(({ status }) => status)).toEqual([200]);
  });

  test('before HEAD and before an answer without a body', async () => {
    const early = 'HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n';
    for (const [method, last] of [
      ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'],
      ['GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ] as const) {
      const all = await answers(`${early}${last}`, '1.1', method);
      expect(all.map(({ status }) => status)).toEqual([103, last.includes('204') ? 204 : 200]);
    }
  });

  test('101 is refused: nobody asked for another protocol', async () => {
    const [answer] = await answers('HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n');
    expect(answer?.status).toBe(502);
  });
});

describe('trailers', () => {
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-C\r\n\r\n2\r\nok\r\n0\r\n';

  test('all their lines, less those for the gateway alone', async () => {
    const lines =
      'X-C: 1\r\nX-Latin: caf\xe9\r\nx-c: 2\r\nSet-Cookie: a=b\r\nAuthentication-Info: nextnonce="x"\r\n';
    const [answer] = await answers(`${chunked}${lines}\r\n`);
    expect(answer?.body.toString()).toBe('ok');
    expect(answer?.trailers).toEqual([
      ['X-C', '1'],
      ['X-Latin', 'caf\xe9'],
      ['x-c', '2'],
    ]);
  });

  test('are kept from a client of HTTP/1.0', async () => {
    const [answer] = await answers(`${chunked}X-C: 1\r\n\r\n`, '1.0');
    expect([answer?.body.toString(), answer?.trailers]).toEqual(['ok', []]);
  });
});

describe('an answer that ends with its connection', () => {
  test.each(['1.1', '1.0'])('of HTTP/%s comes in chunks', async (version) => {
    const [answer] = await answers(`HTTP/${version} 200 OK\r\nConnection: close\r\n\r\nto the end`);
    expect([answer?.status, answer?.body.toString()]).toEqual([200, 'to the end']);
  });
});

test('HEAD of an answer in chunks has no length, no chunks and no trailers', async () => {
  const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-C\r\n\r\n';
  const [answer] = await answers(head, '1.1', 'HEAD');
  expect([answer?.status, answer?.body.length]).toEqual([200, 0]);
  const names = answer?.headers.map(([name]) => name.toLowerCase());
  expect(names).not.toContain('content-length');
  expect(names).not.toContain('trailer');
});

describe('an answer that two clients could read differently is refused:', () => {
  test.each([
    [
      'length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    ],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok'],
    ['a header name with a space', 'HTTP/1.1 200 OK\r\nA b: c\r\nContent-Length: 2\r\n\r\nok'],
    ['a continued header', 'HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok'],
    ['NUL in a header', 'HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 2\r\n\r\nok'],
    [
      'a coding that the client does not hear of',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    ],
    ['no HTTP', 'nonsense\r\n\r\n'],
  ])('%s', async (_what, bytes) => {
    const [answer] = await answers(bytes);
    expect(answer === undefined ? undefined : [answer.status, codeOf(answer)]).toEqual([
      502,
      'upstream-protocol',
    ]);
  });
});
