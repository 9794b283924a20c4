import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { METHODS } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/gateway.ts';
import { valuesOf } from '../../support/raw-client.ts';
import { codeOf, connect, echoOf, useWire } from '../../support/wire.ts';

const wire = useWire();

describe('passes', () => {
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
    test('with the length that the body would have', async () => {
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

  describe('requests of HTTP/1.0, whose client', () => {
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

    test('is named in Via', async () => {
      const { rawHeaders } = echoOf(await wire.ask('GET /echo HTTP/1.0\r\n\r\n'));
      expect(rawHeaders).toContain('1.0 digest-gateway');
    });
  });
});

describe('TRACE', () => {
  test.each([
    'TRACE /echo HTTP/1.1\r\nHost: x\r\n\r\n',
    'TRACE /echo HTTP/1.1\r\nHost: x\r\nMax-Forwards: 3\r\n\r\n',
    'TRACE http://127.0.0.1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
    'OPTIONS /echo HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n',
  ])('is refused with 405 and never reaches the upstream: %j', async (request) => {
    const before = wire.simulator.counts('submissions').requests;
    const answer = await wire.ask(request);
    expect([answer.status, codeOf(answer)]).toEqual([405, 'method-unsupported']);
    expect(valuesOf(answer, 'allow')).toEqual(['GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS']);
    expect(answer.body.toString()).not.toMatch(/nonce|Digest /);
    expect(wire.simulator.counts('submissions').requests).toBe(before);
  });

  test.each([
    ['trace', 400, 'bad-request'],
    ['TRACK', 501, 'not-implemented'],
  ])('in another spelling is no HTTP method: %s', async (method, status, code) => {
    const answer = await wire.ask(`${method} /echo HTTP/1.1\r\nHost: x\r\n\r\n`);
    expect([answer.status, codeOf(answer)]).toEqual([status, code]);
  });
});

describe('CONNECT', () => {
  const CONNECT = 'CONNECT submissions.example.org:443 HTTP/1.1\r\nHost: submissions.example.org:443\r\n\r\n';

  test('is refused with a reason and an alternative', async () => {
    const client = await wire.connect();
    await client.send(CONNECT);
    const answer = await client.answer('CONNECT');
    expect([answer.status, codeOf(answer)]).toEqual([405, 'connect-unsupported']);
    expect(answer.body.toString()).toContain('http://');
    expect(valuesOf(answer, 'allow')).toEqual(['GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS']);
    expect(valuesOf(answer, 'proxy-status')).toEqual(['digest-gateway; error=http_request_denied']);
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
    expect((await client.end()).toString()).toBe('');
  });

  describe('is refused to a client that cannot', () => {
    test('end the process by a reset', async () => {
      for (let count = 0; count < 10; count += 1) {
        const client = await wire.connect();
        await client.send(CONNECT);
        client.socket.resetAndDestroy();
        await once(client.socket, 'close');
      }
      expect(echoOf(await wire.ask('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n')).url).toBe('/echo');
    });

    test('put the refusal before the response to an earlier request', async () => {
      const client = await wire.connect();
      await client.send(`GET /echo HTTP/1.1\r\nHost: x\r\n\r\n${CONNECT}`);
      expect(echoOf(await client.answer()).url).toBe('/echo');
      expect((await client.answer()).status).toBe(405);
      expect((await client.end()).toString()).toBe('');
    });

    test('keep the gateway from ending by keeping its side open', async () => {
      const { origin } = wire.simulator.deployments.submissions;
      const gateway = await startGateway({ upstream: { origin, ca: wire.simulator.ca } });
      const client = await connect(gateway.port);
      await client.send(CONNECT);
      await client.end();
      const begun = performance.now();
      await gateway.close();
      expect(performance.now() - begun).toBeLessThan(5_000);
    });
  });
});
