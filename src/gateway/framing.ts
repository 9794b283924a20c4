import type { IncomingMessage } from 'node:http';
import { GatewayError } from '../base/errors.ts';
import { fieldValues } from '../base/raw-headers.ts';

/** Host and port of RFC 3986 §3.2.2 and §3.2.3; an IPv6 address is in brackets. */
const HOST = /^(?:\[[\da-f:.]+\]|[\w\-.~!$&'()*+,;=%]*)(?::\d*)?$/i;

/**
 * Refuses requests that Node's parser accepts although two servers could read them differently, which makes
 * request smuggling possible.
 * @param protocol the end of the request line
 * @throws GatewayError `bad-request`
 */
export function checkFraming(
  { httpVersion, method, headers, rawHeaders }: IncomingMessage,
  protocol: string,
): void {
  // The parser also reads RTSP and ICE, whose requests look alike; SOURCE is a method of ICE alone. It reads HTTP/0.9 as
  // well, of which the target can end like a version.
  const isKnown = httpVersion === '1.1' || httpVersion === '1.0';
  if (!isKnown || protocol !== `HTTP/${httpVersion}` || method === 'SOURCE') {
    throw new GatewayError('bad-request', 'The request is not HTTP/1.1 or HTTP/1.0.');
  }
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && httpVersion === '1.0') {
    // RFC 9112 §6.1: such framing is faulty.
    throw new GatewayError('bad-request', 'An HTTP/1.0 request cannot have Transfer-Encoding.');
  }
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    throw new GatewayError('bad-request', 'The only supported Transfer-Encoding is chunked.');
  }
  const [host, ...others] = fieldValues(rawHeaders, 'host');
  // RFC 9112 §3.2 requires 400 in all three cases.
  if (host === undefined && httpVersion === '1.1') {
    throw new GatewayError('bad-request', 'The request has no Host header.');
  }
  if (others.length > 0) throw new GatewayError('bad-request', 'The request has more than one Host header.');
  if (host !== undefined && !HOST.test(host)) {
    throw new GatewayError('bad-request', 'The Host header is not a host and port.');
  }
}

/**
 * Refuses methods that must not reach the upstream. Servers respond to TRACE with the request that they
 * received, including the Authorization that the gateway added (RFC 9110 §9.3.8).
 * @throws GatewayError `method-unsupported`
 */
export function checkMethod({ method, rawHeaders }: IncomingMessage): void {
  if (method === 'TRACE') {
    throw new GatewayError('method-unsupported', 'TRACE is not supported: it would show the credential.');
  }
  // RFC 9110 §7.6.2: Max-Forwards 0 addresses the gateway, not the upstream.
  if (method === 'OPTIONS' && fieldValues(rawHeaders, 'max-forwards').some((value) => /^0+$/.test(value))) {
    throw new GatewayError(
      'method-unsupported',
      'The gateway has no options of its own: leave out Max-Forwards.',
    );
  }
}

/**
 * Refuses a request for a WebSocket: sent on as a plain GET, it would get a response that its client cannot explain.
 * Other protocols are ignored, as RFC 9110 §7.8 allows: HTTP clients offer h2c with requests that mean as much without
 * it. Upgrade counts only if Connection names it, and not with HTTP/1.0.
 * @throws GatewayError `upgrade-unsupported`
 */
export function checkUpgrade({ httpVersion, headers }: IncomingMessage): void {
  const { upgrade, connection = '' } = headers;
  if (upgrade === undefined || httpVersion !== '1.1') return;
  if (!lists(upgrade, 'websocket') || !lists(connection, 'upgrade')) return;
  throw new GatewayError(
    'upgrade-unsupported',
    'The gateway does not carry WebSockets. Use plain requests, or server-sent events for a stream.',
  );
}

/** True if a comma-separated list has the name, in any case; a version behind a slash does not count. */
function lists(list: string, name: string): boolean {
  return list.split(',').some((item) => item.split('/', 1)[0]?.trim().toLowerCase() === name);
}
