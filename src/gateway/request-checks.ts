import { GatewayError } from '../base/errors.ts';
import { fieldValues, joinedValue } from '../base/raw-headers.ts';
import type { RequestHead } from './request-head.ts';

/** Host and port of RFC 3986 §3.2.2 and §3.2.3; an IPv6 address is in brackets. */
const HOST = /^(?:\[[\da-f:.]+\]|[\w\-.~!$&'()*+,;=%]*)(?::\d*)?$/i;

/**
 * Refuses a request that does not say, or says twice, which host it is for.
 * @throws GatewayError `bad-request`
 */
export function checkAuthority({ httpVersion, headers }: RequestHead): void {
  const host = joinedValue(headers, 'host');
  // RFC 9112 §3.2 requires 400 in all cases.
  if (host === undefined && httpVersion === '1.1') {
    throw new GatewayError('bad-request', 'The request has no Host header.');
  }
  if (host !== undefined && !HOST.test(host)) {
    throw new GatewayError('bad-request', 'The Host header is not one host and port.');
  }
}

/**
 * Refuses CONNECT, of which the target is no path.
 * @throws GatewayError `connect-unsupported`
 */
export function checkConnect({ method }: RequestHead): void {
  if (method !== 'CONNECT') return;
  throw new GatewayError(
    'connect-unsupported',
    'CONNECT is not supported: the gateway must see a request to authenticate it. Request the http:// URL; the gateway uses TLS to the upstream.',
  );
}

/**
 * Refuses methods that must not reach the upstream. Servers respond to TRACE with the request that they
 * received, including the Authorization that the gateway added (RFC 9110 §9.3.8).
 * @throws GatewayError `method-unsupported`
 */
export function checkMethod({ method, headers }: RequestHead): void {
  if (method === 'TRACE') {
    throw new GatewayError('method-unsupported', 'TRACE is not supported: it would show the credential.');
  }
  // RFC 9110 §7.6.2: Max-Forwards 0 addresses the gateway, not the upstream.
  if (method === 'OPTIONS' && fieldValues(headers, 'max-forwards').some((value) => /^0+$/.test(value))) {
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
export function checkUpgrade({ httpVersion, headers }: RequestHead): void {
  const upgrade = joinedValue(headers, 'upgrade');
  if (upgrade === undefined || httpVersion !== '1.1') return;
  if (!lists(upgrade, 'websocket') || !lists(joinedValue(headers, 'connection') ?? '', 'upgrade')) return;
  throw new GatewayError(
    'upgrade-unsupported',
    'The gateway does not carry WebSockets. Use plain requests, or server-sent events for a stream.',
  );
}

/** True if a comma-separated list has the name, in any case; a version behind a slash does not count. */
function lists(list: string, name: string): boolean {
  return list.split(',').some((item) => item.split('/', 1)[0]?.trim().toLowerCase() === name);
}
