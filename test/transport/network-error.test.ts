import { expect, test } from '@jest/globals';
import { errors } from 'undici';
import { GatewayError } from '../../src/base/errors.ts';
import { connectionEnded, isConnectionLost, upstreamError } from '../../src/transport/network-error.ts';

function coded(code: string, message = 'x'): Error {
  return Object.assign(new Error(message), { code });
}

test.each([
  [coded('ECONNREFUSED'), 'upstream-unreachable'],
  [coded('ENETUNREACH'), 'upstream-unreachable'],
  [coded('ECONNRESET'), 'upstream-unreachable'],
  [coded('EAI_FAIL'), 'upstream-unreachable'],
  [coded('ERR_SOCKET_CLOSED'), 'upstream-unreachable'],
  [connectionEnded(), 'upstream-unreachable'],
  [new errors.ConnectTimeoutError(), 'upstream-timeout'],
  [coded('CERT_HAS_EXPIRED'), 'upstream-tls'],
  [new GatewayError('body-too-large', 'x'), 'body-too-large'],
])('the network or the upstream: %p is %s', (error, code) => {
  expect(upstreamError(error).code).toBe(code);
});

test.each([
  new TypeError('x is not a function'),
  coded('ERR_INVALID_ARG_TYPE'),
  coded('ERR_INVALID_CHAR'),
  coded('ERR_ASSERTION'),
  coded('ENOSPC'),
  coded('EMFILE'),
  coded('ERR_OUT_OF_RANGE'),
  new errors.InvalidArgumentError('invalid header key'),
  'no Error at all',
])('the gateway itself: %p is internal-error', (error) => {
  expect(upstreamError(error)).toMatchObject({ code: 'internal-error', cause: error });
});

test.each([
  [coded('ECONNRESET'), true],
  [coded('EPIPE'), true],
  [connectionEnded(), true],
  [coded('ECONNREFUSED'), false],
  [new errors.ConnectTimeoutError(), false],
  [new GatewayError('upstream-protocol', 'x'), false],
])('%p tells nothing of what became of the request: %p', (error, expected) => {
  expect(isConnectionLost(error)).toBe(expected);
});
