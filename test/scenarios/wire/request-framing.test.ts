import { setImmediate as turn } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { type RawResponse, valuesOf } from '../../support/raw-client.ts';
import { codeOf, echoOf, useWire } from '../../support/wire.ts';

const wire = useWire();
const HOST = 'Host: x\r\n';
const UUID = /^[\da-f-]{36}$/;
/** The request that an attacker wants to smuggle to the upstream. */
const HIDDEN = 'GET /echo/smuggled HTTP/1.1\r\nHost: x\r\n\r\n';

beforeEach(async () => {
  // With a nonce at hand, one request is all that it would take.
  await wire.ask(`GET /echo HTTP/1.1\r\n${HOST}\r\n`);
});

/** Sends the bytes; the one answer must be a refusal that closes, and the upstream must see nothing. */
async function refused(bytes: string, status = 400, code = 'bad-request'): Promise<void> {
  const { requests } = wire.simulator.counts('submissions');
  const client = await wire.connect();
  await client.send(bytes);
  const answer = await client.answer(bytes.slice(0, bytes.indexOf(' ')));
  expectProblem(answer, status, code);
  expect((await client.end()).toString()).toBe('');
  expect(wire.simulator.counts('submissions').requests).toBe(requests);
}

function expectProblem(answer: RawResponse, status: number, code: string): void {
  expect([answer.status, codeOf(answer)]).toEqual([status, code]);
  expect(valuesOf(answer, 'content-type')).toEqual(['application/problem+json']);
  expect(valuesOf(answer, 'proxy-status')).toEqual(['digest-gateway; error=http_request_error']);
  expect(valuesOf(answer, 'connection')).toEqual(['close']);
  expect(valuesOf(answer, 'x-request-id')).toEqual([expect.stringMatching(UUID)]);
}

describe('refuses a length that is given twice, or not in digits:', () => {
  test.each([
    ['Content-Length: 6\r\nTransfer-Encoding: chunked', '0\r\n\r\nX'],
    ['Transfer-Encoding: chunked\r\nContent-Length: 6', '0\r\n\r\nX'],
    ['Content-Length: 0\r\nContent-Length: 44', ''],
    ['Content-Length: 5\r\ncontent-length: 5', 'hello'],
    ['Content-Length: 5, 5', 'hello'],
    ['Content-Length: 5,6', 'hello'],
    ['Content-Length: -5', 'hello'],
    ['Content-Length: +5', 'hello'],
    ['Content-Length: 0x5', 'hello'],
    ['Content-Length: 5.0', 'hello'],
    ['Content-Length: 5 5', 'hello'],
    ['Content-Length:', 'hello'],
    ['Content-Length: "5"', 'hello'],
    ['Content-Length: 18446744073709551621', 'hello'],
  ])('%j', (lines, body) => refused(`POST /echo HTTP/1.1\r\n${HOST}${lines}\r\n\r\n${body}${HIDDEN}`));
});

describe('refuses a transfer coding other than chunked:', () => {
  test.each([
    'chunked, identity',
    'identity',
    'xchunked',
    'chunkedx',
    'gzip',
    'chunked, chunked',
    'chunked;q=1',
    '"chunked"',
    '\x0bchunked',
    'chunked\x00',
    ', chunked',
    'chunked\r\nTransfer-Encoding: chunked',
    'chunked\r\nTransfer-Encoding: x',
    '\r\n chunked',
    '',
  ])('%j', (coding) =>
    refused(`POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: ${coding}\r\n\r\n0\r\n\r\n${HIDDEN}`),
  );
});

describe('responds with 501 to', () => {
  const refusedAsUnknown = (bytes: string): Promise<void> => refused(bytes, 501, 'not-implemented');

  test.each(['gzip, chunked', 'identity\r\nTransfer-Encoding: chunked', 'gzip , deflate,\tChunked'])(
    'a transfer coding below chunked: %j',
    (coding) =>
      refusedAsUnknown(
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: ${coding}\r\n\r\n0\r\n\r\n${HIDDEN}`,
      ),
  );

  test.each(['SMUGGLE', 'SOURCE', 'X'.repeat(2000)])('the method %s', (method) =>
    refusedAsUnknown(`${method} /echo HTTP/1.1\r\n${HOST}\r\n${HIDDEN}`),
  );
});

describe('refuses lines that end or begin ambiguously:', () => {
  test.each([
    ['a header continued on the next line', `GET /echo HTTP/1.1\r\n${HOST}A: b\r\n c: d\r\n\r\n`],
    ['a space before the first header', `GET /echo HTTP/1.1\r\n Transfer-Encoding: chunked\r\n${HOST}\r\n`],
    ['bare LF after a header', `GET /echo HTTP/1.1\r\n${HOST}A: b\nC: d\r\n\r\n`],
    ['bare LF after the request line', `GET /echo HTTP/1.1\n${HOST}\r\n`],
    ['bare LF throughout', 'GET /echo HTTP/1.1\nHost: x\n\n'],
    ['bare LF at the end of the head', `GET /echo HTTP/1.1\r\n${HOST}\n`],
    ['bare CR in a value', `GET /echo HTTP/1.1\r\n${HOST}A: b\rC: d\r\n\r\n`],
    ['two CR', `GET /echo HTTP/1.1\r\n${HOST}A: b\r\r\n\r\n`],
    ['a space before the colon', `POST /echo HTTP/1.1\r\n${HOST}Content-Length : 5\r\n\r\nhello`],
    ['a tab before the colon', `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n`],
    ['no colon', `GET /echo HTTP/1.1\r\n${HOST}Abc\r\n\r\n`],
    ['no name', `GET /echo HTTP/1.1\r\n${HOST}: x\r\n\r\n`],
    ['a name that is no token', `GET /echo HTTP/1.1\r\n${HOST}A(b): x\r\n\r\n`],
    ['bytes in a name', `GET /echo HTTP/1.1\r\n${HOST}\xe9: x\r\n\r\n`],
    ['NUL in a value', `GET /echo HTTP/1.1\r\n${HOST}A: b\x00c\r\n\r\n`],
    ['NUL in a name', `GET /echo HTTP/1.1\r\n${HOST}A\x00: b\r\n\r\n`],
    ['a control character in a value', `GET /echo HTTP/1.1\r\n${HOST}A: b\x01c\r\n\r\n`],
    ['DEL in a value', `GET /echo HTTP/1.1\r\n${HOST}A: b\x7fc\r\n\r\n`],
    ['a space in the target', `GET /echo /x HTTP/1.1\r\n${HOST}\r\n`],
    ['tabs in the request line', `GET\t/echo\tHTTP/1.1\r\n${HOST}\r\n`],
    ['a method in lower case', `get /echo HTTP/1.1\r\n${HOST}\r\n`],
    ['a method that is no token', `G(T /echo HTTP/1.1\r\n${HOST}\r\n`],
    ['TLS on a plain port', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
  ])('%s', (_what, bytes) => refused(bytes));
});

describe('refuses a version that contradicts the framing:', () => {
  test.each([
    [
      'chunked in HTTP/1.0',
      `POST /echo HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`,
    ],
    ['HTTP/2.0', `GET /echo HTTP/2.0\r\n${HOST}\r\n`],
    ['HTTP/0.9', `GET /echo HTTP/0.9\r\n${HOST}\r\n`],
    ['HTTP/0.9 of which the target ends like a version', `GET /echo/HTTP/1.1\r\n${HOST}\r\n${HIDDEN}`],
    ['HTTP/0.9 whose head holds nothing else', `GET /echo/HTTP/1.1\r\n\r\n${HIDDEN}`],
    ['HTTP/1.2', `GET /echo HTTP/1.2\r\n${HOST}\r\n`],
    ['http/1.1', `GET /echo http/1.1\r\n${HOST}\r\n`],
    ['RTSP/1.0', `GET /echo RTSP/1.0\r\n${HOST}\r\n${HIDDEN}`],
    ['RTSP/1.1', `POST /echo RTSP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhello${HIDDEN}`],
    ['a method of RTSP', `DESCRIBE /echo RTSP/1.0\r\n${HOST}\r\n`],
    ['ICE/1.0', `SOURCE /echo ICE/1.0\r\n${HOST}\r\n`],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  ])('%s', (_what, bytes) => refused(bytes));
});

test('refuses a version that arrives in two packets', async () => {
  const { requests } = wire.simulator.counts('submissions');
  const client = await wire.connect();
  await client.send('GET /echo RT');
  await client.send(`SP/1.1\r\n${HOST}\r\n`);
  expectProblem(await client.answer(), 400, 'bad-request');
  expect((await client.end()).toString()).toBe('');
  expect(wire.simulator.counts('submissions').requests).toBe(requests);
});

describe('refuses an ambiguous host:', () => {
  test.each([
    '',
    'Host: a\r\nHost: b\r\n',
    'Host: a\r\nHost: a\r\n',
    'Host: a, b\r\n',
    'Host: a b\r\n',
    'Host: a/b\r\n',
  ])('%j', (lines) => refused(`GET /echo HTTP/1.1\r\n${lines}\r\n`));

  test('refuses an ambiguous host where no deployment is', () =>
    refused('GET http://nowhere.example/ HTTP/1.1\r\n\r\n'));
});

describe('refuses malformed chunks:', () => {
  const head = `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n`;
  test.each([
    'zz\r\nhello\r\n0\r\n\r\n',
    '-5\r\nhello\r\n0\r\n\r\n',
    '0x5\r\nhello\r\n0\r\n\r\n',
    '5 \r\nhello\r\n0\r\n\r\n',
    ' 5\r\nhello\r\n0\r\n\r\n',
    'fffffffffffffffff\r\nhello\r\n0\r\n\r\n',
    '5\r\nhelloXX0\r\n\r\n',
    '5\r\nhello0\r\n\r\n',
    '5\nhello\n0\n\n',
    '5;\nx\r\nhello\r\n0\r\n\r\n',
    '5\r\nhello\r\n0\r\nA : b\r\n\r\n',
    '5\r\nhello\r\n\r\n0\r\n\r\n',
  ])('%j', (body) => refused(`${head}${body}${HIDDEN}`));

  test('even after a part of the body has come', async () => {
    const { requests } = wire.simulator.counts('submissions');
    const client = await wire.connect();
    await client.send(`${head}5\r\nhello\r\n`);
    await client.send('oops\r\n');
    expectProblem(await client.answer(), 400, 'bad-request');
    await client.end();
    expect(wire.simulator.counts('submissions').requests).toBe(requests);
  });
});

describe('refuses a head that is too large:', () => {
  test.each([
    ['a header of 17 KiB', `A: ${'a'.repeat(17_000)}`],
    ['a header of 4 MiB', `A: ${'a'.repeat(4 << 20)}`],
    [
      'headers of 17 KiB',
      Array.from({ length: 1_000 }, (_, index) => `X-Header-${index}: value`).join('\r\n'),
    ],
  ])('%s', (_what, lines) =>
    refused(`GET /echo HTTP/1.1\r\n${HOST}${lines}\r\n\r\n`, 431, 'headers-too-large'),
  );

  test('headers of 4 KiB behind a target of 14 KiB', () =>
    refused(
      `GET /${'a'.repeat(14_000)} HTTP/1.1\r\n${HOST}A: ${'a'.repeat(4_000)}\r\n\r\n`,
      431,
      'headers-too-large',
    ));

  test.each([
    ['at once', 1 << 20],
    ['in pieces of 1000 bytes', 1_000],
    ['in pieces of 16384 bytes', 16_384],
    ['in pieces of 16389 bytes, the first of which ends within the target', 16_389],
  ])('a target of 17 KiB, %s', async (_how, size) => {
    const client = await wire.connect();
    const bytes = `GET /${'a'.repeat(17_000)} HTTP/1.1\r\n${HOST}A: ${'a'.repeat(17_000)}\r\n\r\n`;
    client.socket.setNoDelay(true);
    for (let at = 0; at < bytes.length; at += size) {
      await client.send(bytes.slice(at, at + size));
      await turn();
    }
    expectProblem(await client.answer(), 414, 'target-too-long');
    expect((await client.end()).toString()).toBe('');
  });

  test('a target of 17 KiB of a later request', async () => {
    const client = await wire.connect();
    await client.send(`GET /echo HTTP/1.1\r\n${HOST}A: ${'a'.repeat(4_000)}\r\n\r\n`);
    expect(echoOf(await client.answer()).url).toBe('/echo');
    await client.send(`\r\nGET /${'a'.repeat(17_000)}`);
    expectProblem(await client.answer(), 414, 'target-too-long');
  });
});

test('answers earlier requests on the connection first', async () => {
  const client = await wire.connect();
  await client.send(`GET /echo/1 HTTP/1.1\r\n${HOST}\r\nGET /echo/2 HTTP/1.1\r\n${HOST}\r\nnonsense\r\n\r\n`);
  expect(echoOf(await client.answer()).url).toBe('/echo/1');
  expect(echoOf(await client.answer()).url).toBe('/echo/2');
  expectProblem(await client.answer(), 400, 'bad-request');
  expect((await client.end()).toString()).toBe('');
});

test('reads nothing behind it on the connection', async () => {
  const { requests } = wire.simulator.counts('submissions');
  const client = await wire.connect();
  await client.send('nonsense\r\n\r\n');
  for (let count = 0; count < 5; count += 1) await client.send(HIDDEN);
  expectProblem(await client.answer(), 400, 'bad-request');
  expect((await client.end()).toString()).toBe('');
  expect(wire.simulator.counts('submissions').requests).toBe(requests);
});

test('takes the body that comes after the refusal of its head, whose connection a reset would end', async () => {
  const client = await wire.connect();
  const failed = new Promise((resolve) => client.socket.once('error', resolve));
  await client.send(`PROPFOO /echo HTTP/1.1\r\n${HOST}Content-Length: 9\r\n\r\n`);
  expectProblem(await client.answer(), 501, 'not-implemented');
  await client.end();
  for (const piece of ['one', 'two', 'end']) await client.send(piece);
  client.socket.end();
  const closed = new Promise((resolve) => client.socket.once('close', () => resolve('closed')));
  expect(await Promise.race([failed, closed])).toBe('closed');
});

test('reads nothing behind a request that says close', async () => {
  const { requests } = wire.simulator.counts('submissions');
  const client = await wire.connect();
  await client.send(`GET /echo HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n${HIDDEN}`);
  expect(echoOf(await client.answer()).url).toBe('/echo');
  expect((await client.end()).toString()).toBe('');
  expect(wire.simulator.counts('submissions').requests).toBe(requests + 1);
});

test('serves a head of many short lines as one request', async () => {
  const lines = 'a:b\r\n'.repeat(900);
  const answer = await wire.ask(`POST /echo HTTP/1.1\r\n${HOST}${lines}Content-Length: 5\r\n\r\nhello`);
  const { rawHeaders, body } = echoOf(answer);
  expect(rawHeaders.filter((name) => name === 'a')).toHaveLength(900);
  expect(body.length).toBe(5);
});
