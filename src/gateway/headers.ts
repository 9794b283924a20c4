import { FieldNames, fieldValues, joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import { ORIGIN_FIELDS } from '../http1/fields.ts';
import { TRACE_HEADERS } from '../tracing/tracing.ts';

/** Fields of one connection only (RFC 9110 §7.6.1), removed in both directions. */
const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authentication-info',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** Fields for the gateway itself, and fields that would identify the client to the upstream. */
const NEVER_OUTBOUND = [
  ...HOP_BY_HOP,
  'host',
  'expect',
  'authorization',
  'proxy-authorization',
  'cookie',
  'x-api-key',
  'cookie2',
  'forwarded',
  'x-forwarded',
  'x-forwarded-by',
  'x-forwarded-client-cert',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-forwarded-proto',
  'x-forwarded-scheme',
  'x-forwarded-server',
  'x-forwarded-ssl',
  'x-original-forwarded-for',
  'x-original-host',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-remote-addr',
  'x-remote-ip',
  'client-ip',
  'true-client-ip',
  'cf-connecting-ip',
  'cf-connecting-ipv6',
  'fastly-client-ip',
  'x-appengine-user-ip',
  'x-azure-clientip',
  'x-azure-socketip',
  'x-envoy-external-address',
];

const NOT_OUTBOUND = new FieldNames(NEVER_OUTBOUND);
const NOT_OUTBOUND_NOR_TRACE = new FieldNames([...NEVER_OUTBOUND, ...TRACE_HEADERS]);

/** Fields of the upstream for the gateway itself; X-Request-Id is set by the gateway. */
const NEVER_INBOUND = [
  ...HOP_BY_HOP,
  'www-authenticate',
  'authentication-info',
  'set-cookie',
  'set-cookie2',
  'x-request-id',
];

/** The fields of an upstream's response that do not reach a client. */
export class ResponseFilter {
  readonly any: FieldNames;
  /** Responses without content, 1xx and 204, must not have Content-Length (RFC 9110 §8.6). */
  readonly withoutContent: FieldNames;

  /** `passed`: fields of `ORIGIN_FIELDS` that reach the client. */
  constructor(passed: readonly string[] = []) {
    const unwanted = [...NEVER_INBOUND, ...ORIGIN_FIELDS.filter((name) => !passed.includes(name))];
    this.any = new FieldNames(unwanted);
    this.withoutContent = new FieldNames([...unwanted, 'content-length']);
  }
}

const VIA = '1.1 digest-gateway';
const VIA_HTTP_1_0 = '1.0 digest-gateway';

/**
 * Returns the headers of the upstream request: the client's without those for the gateway, plus Via.
 * @param keepTrace true to forward the client's trace headers
 */
export function outboundHeaders(raw: RawHeaders, httpVersion: string, keepTrace = false): string[] {
  const headers = without(raw, keepTrace ? NOT_OUTBOUND : NOT_OUTBOUND_NOR_TRACE, true);
  headers.push('via', httpVersion === '1.1' ? VIA : VIA_HTTP_1_0);
  return headers;
}

/**
 * Counts Max-Forwards of an OPTIONS request down for the next recipient (RFC 9110 §7.6.2). A value that is no number stays.
 * @param headers flat list, changed in place
 */
export function countDownForwards(headers: string[]): void {
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const value = headers[index + 1] ?? '';
    if (headers[index]?.toLowerCase() !== 'max-forwards' || !/^\d+$/.test(value)) continue;
    headers[index + 1] = String(Math.min(Number(value), Number.MAX_SAFE_INTEGER) - 1);
  }
}

/**
 * Returns the headers of the client's response: the upstream's without those for the gateway, plus Via and
 * X-Request-Id.
 * @param filter of the deployment
 * @param trailers true if the response can carry trailers, so that Trailer is kept
 * @param isHttp11 false if the upstream answered with HTTP/1.0
 */
export function inboundHeaders(
  raw: RawHeaders,
  filter: ResponseFilter,
  status: number,
  requestId: string,
  trailers: boolean,
  isHttp11: boolean,
): string[] {
  const headers = without(raw, status === 204 ? filter.withoutContent : filter.any);
  if (trailers) for (const value of fieldValues(raw, 'trailer')) headers.push('trailer', value);
  headers.push('via', isHttp11 ? VIA : VIA_HTTP_1_0, 'x-request-id', requestId);
  return headers;
}

/** Returns the headers of an interim response (1xx) for the client. */
export function interimHeaders(raw: RawHeaders, filter: ResponseFilter): string[] {
  return without(raw, filter.withoutContent);
}

/**
 * Returns the trailers for the client.
 * @param head headers of the response, whose Connection names fields of the trailers, too (RFC 9110 §7.6.1)
 */
export function inboundTrailers(raw: RawHeaders, head: RawHeaders, filter: ResponseFilter): RawHeaders {
  return without(raw, filter.any, false, connectionListed([...head, ...raw]));
}

/** `folded`: also removes names with `_` for `-`, because CGI maps both to one name. */
function without(
  raw: RawHeaders,
  unwanted: FieldNames,
  folded = false,
  listed = connectionListed(raw),
): string[] {
  const kept: string[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    if (unwanted.has(name) || listed?.has(name.toLowerCase()) === true) continue;
    if (folded && name.includes('_') && isUnwantedFolded(name.replaceAll('_', '-'), unwanted)) continue;
    kept.push(name, raw[index + 1] ?? '');
  }
  return kept;
}

function isUnwantedFolded(name: string, unwanted: FieldNames): boolean {
  return name.toLowerCase() === 'content-length' || unwanted.has(name);
}

/** Names that the sender's Connection header declares hop-by-hop; undefined if there are none. */
function connectionListed(raw: RawHeaders): ReadonlySet<string> | undefined {
  const text = joinedValue(raw, 'connection')?.toLowerCase();
  if (text === undefined || text === 'keep-alive') return undefined;
  let listed: Set<string> | undefined;
  for (const name of text.split(',')) {
    const trimmed = name.trim();
    // Content-Length is framing: removing it would leave a body of unknown length.
    if (trimmed === 'close' || trimmed === 'keep-alive' || trimmed === 'content-length') continue;
    listed ??= new Set();
    listed.add(trimmed);
  }
  return listed;
}
