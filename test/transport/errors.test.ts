import { expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { connectionEnded, isConnectionLost, upstreamError } from '../../src/transport/errors.ts';
import { proxyError } from '../../src/transport/proxy-errors.ts';

function coded(code: string, message = 'x'): Error {
  return Object.assign(new Error(message), { code });
}

test.each([
  [coded('ECONNREFUSED'), 'upstream-unreachable', 'connection_refused'],
  [coded('ENETUNREACH'), 'upstream-unreachable', 'destination_ip_unroutable'],
  [coded('EHOSTUNREACH'), 'upstream-unreachable', 'destination_ip_unroutable'],
  [coded('ECONNRESET'), 'upstream-unreachable', 'connection_terminated'],
  [coded('ENOTFOUND'), 'upstream-unreachable', 'dns_error'],
  [coded('EAI_FAIL'), 'upstream-unreachable', 'dns_error'],
  [coded('EADDRNOTAVAIL'), 'upstream-unreachable', 'destination_unavailable'],
  [coded('ERR_SOCKET_CLOSED'), 'upstream-unreachable', 'connection_terminated'],
  [connectionEnded(), 'upstream-unreachable', 'connection_terminated'],
  [coded('ETIMEDOUT'), 'upstream-timeout', 'connection_timeout'],
  [coded('ETIMEOUT'), 'upstream-timeout', 'dns_timeout'],
  [coded('ERR_TLS_HANDSHAKE_TIMEOUT'), 'upstream-timeout', 'connection_timeout'],
  [coded('EAI_ADDRFAMILY'), 'upstream-unreachable', 'dns_error'],
  [coded('CERT_HAS_EXPIRED'), 'upstream-tls', 'tls_certificate_error'],
  [coded('ERR_TLS_CERT_ALTNAME_INVALID'), 'upstream-tls', 'tls_certificate_error'],
  [coded('ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED'), 'upstream-tls', 'tls_alert_received'],
  [coded('ERR_SSL_WRONG_VERSION_NUMBER'), 'upstream-tls', 'tls_protocol_error'],
  [new GatewayError('body-too-large', 'x'), 'body-too-large', 'http_request_error'],
])('the network or the upstream: %p is %s, %s', (error, code, proxyError) => {
  expect(upstreamError(error)).toMatchObject({ code, proxyError });
});

test.each([
  new TypeError('x is not a function'),
  coded('ERR_INVALID_ARG_TYPE'),
  coded('ERR_INVALID_CHAR'),
  coded('ERR_ASSERTION'),
  coded('ENOSPC'),
  coded('EMFILE'),
  coded('EADDRINUSE'),
  coded('ERR_OUT_OF_RANGE'),
  coded('ERR_INVALID_CHAR'),
  'no Error at all',
])('the gateway itself: %p is internal-error', (error) => {
  expect(upstreamError(error)).toMatchObject({ code: 'internal-error', cause: error });
});

test('what this host lacks is no error of the proxy', () => {
  const lack = coded('EMFILE');
  expect(proxyError(lack)).toMatchObject({ code: 'internal-error', cause: lack });
});

test.each([
  ['ETIMEOUT', 'DNS did not answer in time for the name of the proxy', 'dns_timeout'],
  ['ETIMEDOUT', 'The proxy took too long to accept the connection', 'connection_timeout'],
  ['ERR_TLS_HANDSHAKE_TIMEOUT', 'The proxy took too long for TLS', 'connection_timeout'],
  ['EAI_ADDRFAMILY', 'DNS has no address for the name of the proxy', 'dns_error'],
])('the proxy is not blamed for the way behind it: %s', (code, beginning, type) => {
  expect(proxyError(coded(code))).toMatchObject({
    code: 'upstream-unreachable',
    detail: expect.stringMatching(`^${beginning} `),
    proxyError: type,
  });
});

test.each([upstreamError, proxyError])(
  'a host without a free port is not taken for a connection that broke, or for a missing egress.localAddress: %p',
  (of) => {
    const { detail } = of(coded('EADDRNOTAVAIL'));
    expect(detail).toBe('This host has no free port, or no address of its own, to connect from.');
  },
);

test.each([
  [coded('ECONNRESET'), true],
  [coded('EPIPE'), true],
  [connectionEnded(), true],
  [coded('ECONNREFUSED'), false],
  [coded('ETIMEDOUT'), false],
  [new GatewayError('upstream-protocol', 'x'), false],
])('%p tells nothing of what became of the request: %p', (error, expected) => {
  expect(isConnectionLost(error)).toBe(expected);
});
