import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { type ErrorCode, GatewayError } from '../../src/base/errors.ts';
import { sendProblem, sendRawProblem } from '../../src/gateway/problem.ts';
import { useClosing } from '../support/closing.ts';
import { RawClient } from '../support/raw-client.ts';
import { type RawResponse, valuesOf } from '../support/raw-response.ts';

const closing = useClosing();

/** Bytes that a client reads when the server responds like this. */
async function answered(listener: RequestListener, method = 'GET'): Promise<RawResponse> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = await RawClient.open((server.address() as AddressInfo).port);
  closing.push(async () => {
    client.close();
    server.close();
    await once(server, 'close');
  });
  await client.send(`${method} / HTTP/1.1\r\nHost: x\r\n\r\n`);
  return client.answer(method);
}

const refusal = new GatewayError(
  'upstream-tls',
  'The certificate is – "not" – acceptable.',
  new Error('private'),
);

describe('a problem', () => {
  test('says what happened in the words of RFC 9457 and RFC 9209', async () => {
    const answer = await answered((_req, res) => sendProblem(res, refusal, 'id-1', false));
    expect([answer.status, answer.reason]).toEqual([502, 'Bad Gateway']);
    expect(JSON.parse(answer.body.toString())).toEqual({
      status: 502,
      code: 'upstream-tls',
      title: 'Upstream TLS failed',
      detail: 'The certificate is – "not" – acceptable.',
      requestId: 'id-1',
    });
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'application/problem+json',
      'content-length': String(answer.body.length),
      'cache-control': 'no-store',
      'proxy-status': 'digest-gateway; error=tls_protocol_error',
      'x-request-id': 'id-1',
      Connection: 'keep-alive',
    });
  });

  test('tells nothing of the cause', async () => {
    const answer = await answered((_req, res) => sendProblem(res, refusal, 'id-1', false));
    expect(answer.body.toString()).not.toContain('private');
  });

  test('closes the connection when told to', async () => {
    const answer = await answered((_req, res) => sendProblem(res, refusal, 'id-1', true));
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
  });

  test('answers HEAD with its headers alone', async () => {
    const answer = await answered((_req, res) => sendProblem(res, refusal, 'id-1', false), 'HEAD');
    expect(answer.status).toBe(502);
    expect(valuesOf(answer, 'content-type')).toEqual(['application/problem+json']);
  });

  test('takes the place of a head that could not be written, with a reason of its own', async () => {
    const answer = await answered((_req, res) => {
      expect(() => res.writeHead(200, 'no reason\u4e2d', [])).toThrow('statusMessage');
      sendProblem(res, refusal, 'id-1', false);
    });
    expect([answer.status, answer.reason]).toEqual([502, 'Bad Gateway']);
  });

  test('reads the same on a connection without a request', async () => {
    const usual = await answered((_req, res) => sendProblem(res, refusal, 'id-1', true));
    const raw = await answered((req) => sendRawProblem(req.socket, refusal, 'id-1'));
    expect([raw.status, raw.reason, raw.body]).toEqual([usual.status, usual.reason, usual.body]);
    const own = ({ headers }: RawResponse) => headers.filter(([name]) => name !== 'Date');
    expect(own(raw)).toEqual(own(usual));
  });
});

describe('the headers that a status asks for', () => {
  test.each<[ErrorCode, string, string]>([
    ['client-unknown', 'www-authenticate', 'Basic realm="digest-gateway"'],
    ['connect-unsupported', 'allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'],
    ['overloaded', 'retry-after', '1'],
    ['draining', 'retry-after', '5'],
  ])('%s: %s', async (code, name, value) => {
    const answer = await answered((_req, res) => sendProblem(res, new GatewayError(code, ''), 'id', false));
    expect(valuesOf(answer, name)).toEqual([value]);
  });

  test.each<ErrorCode>(['overloaded', 'upstream-timeout'])(
    '%s: the Retry-After of the error takes the place of that of its code',
    async (code) => {
      const error = new GatewayError(code, '', undefined, 17);
      const answer = await answered((_req, res) => sendProblem(res, error, 'id', false));
      expect(valuesOf(answer, 'retry-after')).toEqual(['17']);
    },
  );
});
