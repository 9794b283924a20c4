import { expect, test } from '@jest/globals';
import { errors } from 'undici';
import { GatewayError } from '../../src/base/errors.ts';
import { upstreamError } from '../../src/transport/network-error.ts';

function coded(code: string, message = 'x'): Error {
  return Object.assign(new Error(message), { code });
}

test.each([
  [coded('ECONNREFUSED'), 'upstream-unreachable'],
  [coded('ENETUNREACH'), 'upstream-unreachable'],
  [coded('ECONNRESET'), 'upstream-unreachable'],
  [coded('EAI_FAIL'), 'upstream-unreachable'],
  [new errors.SocketError('other side closed'), 'upstream-unreachable'],
  [new errors.InformationalError('reset'), 'upstream-unreachable'],
  [new errors.HeadersTimeoutError(), 'upstream-timeout'],
  [new errors.HTTPParserError('x'), 'upstream-protocol'],
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
  new errors.NotSupportedError('x'),
  new errors.ClientDestroyedError(),
  'no Error at all',
])('the gateway itself: %p is internal-error', (error) => {
  expect(upstreamError(error)).toMatchObject({ code: 'internal-error', cause: error });
});
