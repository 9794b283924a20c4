import { createHash } from 'node:crypto';
import { METHODS } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { valuesOf } from '../../support/raw-answer.ts';
import { echoOf, useWire } from '../../support/wire.ts';

const wire = useWire();
const sha256 = (text: string | Buffer) => createHash('sha256').update(text).digest('hex');

/** Both on one connection: an answer that is framed wrongly would spoil the next one. */
async function askTwice(head: string, body = '') {
  const client = await wire.connect();
  const method = head.slice(0, head.indexOf(' '));
  await client.send(`${head}\r\n${body}`);
  const answer = await client.answer(method);
  await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
  expect(echoOf(await client.answer()).url).toBe('/echo/next');
  return answer;
}

describe('every method that HTTP knows', () => {
  // The gateway refuses TRACE. SOURCE is a method of Icecast, which Node's parser reads, too.
  const methods = METHODS.filter((method) => !['CONNECT', 'SOURCE', 'TRACE'].includes(method));

  test.each(methods)('%s', async (method) => {
    const answer = await askTwice(`${method} /echo HTTP/1.1\r\nHost: x\r\n`);
    expect(answer.status).toBe(200);
    if (method !== 'HEAD') expect(echoOf(answer).method).toBe(method);
  });

  test.each(methods.filter((method) => method !== 'HEAD'))('%s with a body', async (method) => {
    const known = await askTwice(`${method} /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n`, 'hello');
    expect(echoOf(known)).toMatchObject({ method, body: { length: 5, sha256: sha256('hello') } });
    const chunks = '2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX-Trailer: z\r\n\r\n';
    const chunked = await askTwice(
      `${method} /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n`,
      chunks,
    );
    expect(echoOf(chunked)).toMatchObject({ method, body: { length: 5, sha256: sha256('hello') } });
  });
});

describe('every status', () => {
  test.each([
    200, 201, 202, 206, 226, 300, 301, 302, 307, 400, 402, 403, 404, 407, 410, 418, 429, 451, 500, 503, 599,
  ])('%d with its body', async (status) => {
    const answer = await askTwice(`GET /status/${status} HTTP/1.1\r\nHost: x\r\n`);
    expect([answer.status, answer.body.toString()]).toEqual([status, `status ${status}\n`]);
    expect(valuesOf(answer, 'proxy-status')).toEqual([]);
  });

  test.each([204, 205, 304])('%d without one', async (status) => {
    const answer = await askTwice(`GET /status/${status} HTTP/1.1\r\nHost: x\r\n`);
    expect([answer.status, answer.body.length]).toEqual([status, 0]);
    expect(valuesOf(answer, 'transfer-encoding')).toEqual([]);
  });
});

describe('HEAD', () => {
  test('has the length that the body would have', async () => {
    const answer = await askTwice('HEAD /bytes/1000000 HTTP/1.1\r\nHost: x\r\n');
    expect([answer.status, valuesOf(answer, 'content-length')]).toEqual([200, ['1000000']]);
  });
});

describe('a body', () => {
  test.each([0, 1, 65_536, 1_000_003])('of %d bytes with its length', async (length) => {
    const answer = await askTwice(`GET /bytes/${length} HTTP/1.1\r\nHost: x\r\n`);
    expect(valuesOf(answer, 'content-length')).toEqual([String(length)]);
    expect(valuesOf(answer, 'transfer-encoding')).toEqual([]);
    expect(answer.body.length).toBe(length);
  });

  test.each([0, 1, 1_000_003])('of %d bytes in chunks, with the trailer that follows', async (length) => {
    const answer = await askTwice(`GET /bytes/${length}?chunked HTTP/1.1\r\nHost: x\r\n`);
    expect(valuesOf(answer, 'transfer-encoding')).toEqual(['chunked']);
    expect(valuesOf(answer, 'content-length')).toEqual([]);
    expect(valuesOf(answer, 'trailer')).toEqual(['X-Checksum']);
    expect(answer.body.length).toBe(length);
    expect(answer.trailers).toEqual([['X-Checksum', sha256(answer.body)]]);
  });
});

describe('a client of HTTP/1.0', () => {
  test('gets the length, or the end of the connection, and never chunks', async () => {
    for (const target of ['/bytes/70000', '/bytes/70000?chunked']) {
      const client = await wire.connect();
      await client.send(`GET ${target} HTTP/1.0\r\n\r\n`);
      await client.end();
      const answer = await client.answer();
      expect([answer.status, answer.body.length]).toEqual([200, 70_000]);
      expect(valuesOf(answer, 'transfer-encoding')).toEqual([]);
      expect(valuesOf(answer, 'trailer')).toEqual([]);
      expect(valuesOf(answer, 'connection')).toEqual(['close']);
    }
  });

  test('keeps its connection if it asks for that', async () => {
    const client = await wire.connect();
    for (const path of ['/echo/1', '/echo/2']) {
      await client.send(`POST ${path} HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok`);
      const answer = await client.answer();
      expect(valuesOf(answer, 'connection')).toEqual(['keep-alive']);
      expect(echoOf(answer)).toMatchObject({ url: path, body: { length: 2 } });
    }
  });

  test('is named as such to the upstream', async () => {
    const { rawHeaders } = echoOf(await wire.ask('GET /echo HTTP/1.0\r\n\r\n'));
    expect(rawHeaders).toContain('1.0 digest-gateway');
  });
});
