import {
  FieldFamilies,
  FieldNames,
  fieldValue,
  fieldValues,
  joinedValue,
  type RawHeaders,
} from '../base/raw-headers.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import { CRLF_LENGTH, LF, ORIGIN_FIELDS, SPACE } from '../http1/fields.ts';
import { TRACE_FIELDS } from '../policy/fields.ts';

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
  // Sent on without the names of hosts.
  'via',
  'authorization',
  'proxy-authorization',
  'cookie',
  'x-api-key',
  'cookie2',
  'forwarded',
  'x-forwarded',
  'x-forwarded-by',
  'x-forwarded-for',
  'x-forwarded-for-original',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-forwarded-proto',
  'x-forwarded-scheme',
  'x-forwarded-server',
  'x-forwarded-ssl',
  // Proxies in front of the gateway name the client in these, and in those of IDENTITY_FAMILIES.
  ...['client-cert', 'client-cert-chain', 'x-arr-clientcert', 'x-client-dn'],
  ...['x-forwarded-user', 'x-forwarded-email', 'x-forwarded-groups', 'x-forwarded-preferred-username'],
  ...['x-forwarded-access-token', 'x-goog-iap-jwt-assertion', 'x-pomerium-jwt-assertion'],
  ...['remote-user', 'remote-groups', 'remote-email', 'remote-name', 'remote-addr'],
  ...['x-original-forwarded-for', 'x-original-host', 'forwarded-for', 'x-originating-ip'],
  ...['x-real-ip', 'x-client-ip', 'x-cluster-client-ip', 'x-remote-addr', 'x-remote-ip'],
  ...['client-ip', 'true-client-ip', 'proxy-client-ip', 'x-proxyuser-ip'],
  ...['cf-connecting-ip', 'cf-connecting-ipv6', 'fastly-client-ip', 'fly-client-ip', 'do-connecting-ip'],
  ...['x-nf-client-connection-ip', 'x-vercel-forwarded-for', 'x-sucuri-clientip', 'x-appengine-user-ip'],
  ...['x-azure-clientip', 'x-azure-socketip', 'x-envoy-external-address'],
];

/** How fields begin in which proxies and CDNs name the client, by its address, its certificate or its login. */
const IDENTITY_FAMILIES = [
  'cf-access-',
  'cloudfront-viewer-',
  'ssl-client-',
  'tailscale-user-',
  'wl-proxy-client-',
  'x-amzn-mtls-clientcert',
  'x-amzn-oidc-',
  'x-auth-request-',
  'x-authentik-',
  'x-client-cert',
  'x-envoy-peer-metadata',
  'x-forwarded-client-cert',
  'x-forwarded-tls-client-cert',
  'x-goog-authenticated-user-',
  'x-ms-client-principal',
  'x-ms-token-aad-',
  'x-pomerium-claim-',
  'x-remote-extra-',
  'x-remote-group',
  'x-remote-user',
  'x-ssl-cert',
  'x-ssl-client-',
  'x-token-user-',
  'x-vouch-',
  'x-webauth-',
];

/** How trace fields begin of which there are many: OpenTracing, Jaeger, B3, and vendors. */
const TRACE_FAMILIES = ['ot-tracer-', 'uberctx-', 'x-b3-', 'x-datadog-', 'x-dynatrace', 'x-instana-'];

/** Fields of a client that do not reach the upstream. */
class RequestFilter {
  readonly names: FieldNames;
  /** Not even in a spelling that CGI takes for the same. */
  readonly resembled: FieldNames;
  readonly families: FieldFamilies;

  constructor(names: readonly string[], families: readonly string[]) {
    this.names = new FieldNames(names);
    this.resembled = new FieldNames([...names, 'content-length']);
    this.families = new FieldFamilies(families);
  }
}

const WITH_TRACE = new RequestFilter(NEVER_OUTBOUND, IDENTITY_FAMILIES);
const WITHOUT_TRACE = new RequestFilter(
  [...NEVER_OUTBOUND, ...TRACE_FIELDS],
  [...IDENTITY_FAMILIES, ...TRACE_FAMILIES],
);

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
/** Via, and the start of X-Request-Id. */
const OWN_LINES = `via: ${VIA}\r\nx-request-id: `;
const OWN_LINES_HTTP_1_0 = `via: ${VIA_HTTP_1_0}\r\nx-request-id: `;

/**
 * Returns the headers of the upstream request: the client's without those for the gateway and without the names in Via,
 * plus Via.
 * @param keepTrace true to forward the client's trace headers
 */
export function outboundHeaders(raw: RawHeaders, httpVersion: string, keepTrace = false): string[] {
  const filter = keepTrace ? WITH_TRACE : WITHOUT_TRACE;
  const headers = without(raw, filter.names, filter);
  const own = httpVersion === '1.1' ? VIA : VIA_HTTP_1_0;
  const via = joinedValue(raw, 'via');
  return headers.concat('via', via === undefined ? own : `${pseudonymousVia(via)}${own}`);
}

/** A member of Via (RFC 9110 §7.6.3): its version of HTTP, and the start of the name of a host. */
const VIA_MEMBER = /(?:^|,)[ \t]*(?:HTTP\/)?(\d(?:\.\d)?)[ \t]+[^ \t,]/gi;

/** Via of a client for the upstream: a proxy in front of the gateway must not make internal names known. */
function pseudonymousVia(via: string): string {
  let text = '';
  for (const [, version] of via.matchAll(VIA_MEMBER)) text += `${version} client-side, `;
  return text;
}

/**
 * Counts Max-Forwards of an OPTIONS request down for the next recipient (RFC 9110 §7.6.2). A value that is not a number
 * stays.
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
 * Returns the field lines of the client's response: the upstream's without those for the gateway, plus Via,
 * X-Request-Id, and Date if it has none.
 * @param filter of the deployment
 * @param trailers true if the response can carry trailers, so that Trailer is kept
 */
export function inboundLines(
  { status, headers, lines, isHttp11 }: UpstreamResponse,
  filter: ResponseFilter,
  requestId: string,
  trailers: boolean,
): string {
  const listed = connectionListed(headers);
  let text = keptLines(headers, lines, status === 204 ? filter.withoutContent : filter.any, listed);
  if (trailers) for (const value of fieldValues(headers, 'trailer')) text += lineOf('trailer', value);
  if (fieldValue(headers, 'date') === undefined || listed?.has('date') === true) text += dateLine();
  return `${text}${isHttp11 ? OWN_LINES : OWN_LINES_HTTP_1_0}${requestId}\r\n`;
}

/** The lines of wanted fields. Those that stand together and have the usual form are passed on in one piece. */
function keptLines(
  headers: RawHeaders,
  lines: string,
  unwanted: FieldNames,
  listed: ReadonlySet<string> | undefined,
): string {
  let text = '';
  // Lines from `piece` to `at` are passed on as they came.
  let piece = 0;
  let at = 0;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    const isKept = !unwanted.has(name) && listed?.has(name.toLowerCase()) !== true;
    const usualEnd = at + name.length + ': '.length + value.length + CRLF_LENGTH;
    const isUsual = lines.charCodeAt(usualEnd - 1) === LF && lines.charCodeAt(at + name.length + 1) === SPACE;
    const before = at;
    at = isUsual ? usualEnd : lines.indexOf('\n', at) + 1;
    if (isKept && isUsual) continue;
    text += lines.slice(piece, before);
    if (isKept) text += lineOf(name, value);
    piece = at;
  }
  return text + lines.slice(piece, at);
}

/** The lines of these fields, each with its CRLF. */
export function linesOf(fields: RawHeaders): string {
  let lines = '';
  for (let at = 0; at + 1 < fields.length; at += 2) lines += lineOf(fields[at] ?? '', fields[at + 1] ?? '');
  return lines;
}

function lineOf(name: string, value: string): string {
  return `${name}: ${value}\r\n`;
}

let dateSecond = 0;
let date = '';

/** The line of the field Date (RFC 9110 §6.6.1). */
export function dateLine(): string {
  const now = Date.now();
  const second = Math.floor(now / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    date = lineOf('Date', new Date(now).toUTCString());
  }
  return date;
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
  return without(raw, filter.any, undefined, connectionListed([...head, ...raw]));
}

/** `outbound`: of a request, whose fields are removed in other spellings and by how they begin, too. */
function without(
  raw: RawHeaders,
  unwanted: FieldNames,
  outbound?: RequestFilter,
  listed = connectionListed(raw),
): string[] {
  // A list that grows would have room for 17 or 41 items.
  const kept = new Array<string>(raw.length);
  let count = 0;
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    if (unwanted.has(name) || listed?.has(name.toLowerCase()) === true) continue;
    if (outbound !== undefined && (outbound.resembled.resemble(name) || outbound.families.has(name)))
      continue;
    kept[count] = name;
    kept[count + 1] = raw[index + 1] ?? '';
    count += 2;
  }
  kept.length = count;
  return kept;
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
