import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { type ErrorCode, errorKinds, GatewayError } from '../../src/base/errors.ts';
import { ClientResponse, sendProblem, sendRawProblem } from '../../src/gateway/client-response.ts';
import { requestHead } from '../../src/gateway/request-reader.ts';
import { closing } from '../support/closing.ts';
import { RawClient, type RawResponse, valuesOf } from '../support/raw-client.ts';

const KEPT = 'Connection: keep-alive\r\n';

/** The response that a client reads when the server responds like this. */
async function answered(
  respond: (response: ClientResponse, socket: Socket) => void,
  method = 'GET',
): Promise<RawResponse> {
  const head = requestHead(`${method} / HTTP/1.1\r\nHost: x\r\n`);
  const server = createServer((socket) => {
    socket.once('data', () => respond(new ClientResponse(socket, head, KEPT, () => {}), socket));
  }).listen(0, '127.0.0.1');
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

/** Sends the problem as the last response of the connection. */
function sendLast(response: ClientResponse): void {
  response.keepsConnection = false;
  sendProblem(response, refusal, 'id-1');
}

describe('a problem', () => {
  test('says what happened in the words of RFC 9457 and RFC 9209', async () => {
    const answer = await answered((response) => sendProblem(response, refusal, 'id-1'));
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

  test('uses types of RFC 9209 §2.3 only', () => {
    const types = [
      ...['dns_timeout', 'dns_error', 'destination_not_found', 'destination_unavailable'],
      ...[
        'destination_ip_prohibited',
        'destination_ip_unroutable',
        'connection_refused',
        'connection_terminated',
      ],
      ...[
        'connection_timeout',
        'connection_read_timeout',
        'connection_write_timeout',
        'connection_limit_reached',
      ],
      ...['tls_protocol_error', 'tls_certificate_error', 'tls_alert_received', 'http_request_error'],
      ...['http_request_denied', 'http_response_incomplete', 'http_response_header_section_size'],
      ...['http_response_header_size', 'http_response_body_size', 'http_response_trailer_section_size'],
      ...['http_response_trailer_size', 'http_response_transfer_coding', 'http_response_content_coding'],
      ...['http_response_timeout', 'http_upgrade_failed', 'http_protocol_error', 'proxy_internal_response'],
      ...['proxy_internal_error', 'proxy_configuration_error', 'proxy_loop_detected'],
    ];
    const used = errorKinds().flatMap(([, { proxyError, knownProxyErrors = [] }]) => [
      proxyError,
      ...knownProxyErrors,
    ]);
    expect(types).toEqual(expect.arrayContaining(used));
  });

  test('has the type of its error in place of that of its code', async () => {
    const refused = new GatewayError('upstream-tls', '', undefined, { proxyError: 'tls_alert_received' });
    const answer = await answered((response) => sendProblem(response, refused, 'id-1'));
    expect(valuesOf(answer, 'proxy-status')).toEqual(['digest-gateway; error=tls_alert_received']);
  });

  test('tells nothing of the cause', async () => {
    const answer = await answered((response) => sendProblem(response, refusal, 'id-1'));
    expect(answer.body.toString()).not.toContain('private');
  });

  test('closes the connection when told to', async () => {
    const answer = await answered(sendLast);
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
  });

  test('answers HEAD with its headers alone', async () => {
    const answer = await answered((response) => sendProblem(response, refusal, 'id-1'), 'HEAD');
    expect(answer.status).toBe(502);
    expect(valuesOf(answer, 'content-type')).toEqual(['application/problem+json']);
  });

  test('reads the same on a connection without a request', async () => {
    const usual = await answered(sendLast);
    const raw = await answered((_response, socket) => sendRawProblem(socket, refusal, 'id-1'));
    expect([raw.status, raw.reason, raw.body]).toEqual([usual.status, usual.reason, usual.body]);
    const own = ({ headers }: RawResponse) => headers.filter(([name]) => name.toLowerCase() !== 'date');
    expect(own(raw)).toEqual(own(usual));
    for (const answer of [usual, raw]) {
      expect(valuesOf(answer, 'date')).toEqual([
        expect.stringMatching(/^\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT$/),
      ]);
    }
  });
});

describe('the headers that a status asks for', () => {
  test.each<[ErrorCode, string, string]>([
    ['client-unknown', 'www-authenticate', 'Basic realm="digest-gateway"'],
    ['client-key-expired', 'www-authenticate', 'Basic realm="digest-gateway"'],
    ['connect-unsupported', 'allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'],
    ['overloaded', 'retry-after', '1'],
    ['draining', 'retry-after', '5'],
  ])('%s: %s', async (code, name, value) => {
    const answer = await answered((response) => sendProblem(response, new GatewayError(code, ''), 'id'));
    expect(valuesOf(answer, name)).toEqual([value]);
  });

  test.each<ErrorCode>(['overloaded', 'upstream-timeout'])(
    '%s: the Retry-After of the error takes the place of that of its code',
    async (code) => {
      const error = new GatewayError(code, '', undefined, { retryAfter: 17 });
      const answer = await answered((response) => sendProblem(response, error, 'id'));
      expect(valuesOf(answer, 'retry-after')).toEqual(['17']);
    },
  );
});
