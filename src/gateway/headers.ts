import { TRACE_HEADERS } from '../tracing/tracing.ts';

/** Fields about one connection only (RFC 9110 §7.6.1), which end here in both directions. */
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

/** What a client says to the gateway, and what would tell the upstream who the client is. */
const NOT_OUTBOUND: ReadonlySet<string> = new Set([
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
]);

const NOT_OUTBOUND_NOR_TRACE: ReadonlySet<string> = new Set([...NOT_OUTBOUND, ...TRACE_HEADERS]);

/** What the upstream says to the gateway; X-Request-Id is the gateway's own. */
const NOT_INBOUND: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'www-authenticate',
  'authentication-info',
  'set-cookie',
  'set-cookie2',
  'x-request-id',
]);

/** Responses without content, 1xx and 204, must not have Content-Length (RFC 9110 §8.6). */
const NOT_WITHOUT_CONTENT: ReadonlySet<string> = new Set([...NOT_INBOUND, 'content-length']);

const VIA = '1.1 digest-gateway';

/**
 * The headers that go upstream: a client's, less those for the gateway alone, and Via. Flat lists:
 * name, value, name, value … `keepTrace`: what the client says of its trace goes, too.
 */
export function outboundHeaders(raw: readonly string[], httpVersion: string, keepTrace = false): string[] {
  const headers = without(raw, keepTrace ? NOT_OUTBOUND : NOT_OUTBOUND_NOR_TRACE, true);
  headers.push('via', httpVersion === '1.1' ? VIA : `${httpVersion} digest-gateway`);
  return headers;
}

/**
 * The headers that go to the client: the upstream's, less those for the gateway alone, with Via and
 * X-Request-Id. `trailers`: the answer can carry trailers, so their announcement stays.
 */
export function inboundHeaders(
  raw: readonly string[],
  status: number,
  requestId: string,
  trailers: boolean,
): string[] {
  const headers = without(raw, status === 204 ? NOT_WITHOUT_CONTENT : NOT_INBOUND);
  if (trailers) for (const value of fieldValues(raw, 'trailer')) headers.push('trailer', value);
  headers.push('via', VIA, 'x-request-id', requestId);
  return headers;
}

/** The headers of an interim answer (1xx) that go to the client. */
export function interimHeaders(raw: readonly string[]): string[] {
  return without(raw, NOT_WITHOUT_CONTENT);
}

/** The trailers that go to the client. */
export function inboundTrailers(raw: readonly string[]): [string, string][] {
  const kept = without(raw, NOT_INBOUND);
  const pairs: [string, string][] = [];
  for (let index = 0; index + 1 < kept.length; index += 2) {
    pairs.push([kept[index] ?? '', kept[index + 1] ?? '']);
  }
  return pairs;
}

/** `folded`: also names with `_` for `-`. CGI and its kind make one name of both. */
function without(raw: readonly string[], unwanted: ReadonlySet<string>, folded = false): string[] {
  const listed = connectionListed(raw);
  const kept: string[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const key = name.toLowerCase();
    if (unwanted.has(key) || listed?.has(key) === true) continue;
    if (folded && key.includes('_') && isUnwantedFolded(key.replaceAll('_', '-'), unwanted)) continue;
    kept.push(name, raw[index + 1] ?? '');
  }
  return kept;
}

function isUnwantedFolded(name: string, unwanted: ReadonlySet<string>): boolean {
  return name === 'content-length' || unwanted.has(name);
}

/** Names that the sender's Connection header declares hop-by-hop; undefined: none. */
function connectionListed(raw: readonly string[]): ReadonlySet<string> | undefined {
  let listed: Set<string> | undefined;
  for (const value of fieldValues(raw, 'connection')) {
    const text = value.toLowerCase();
    if (text === 'keep-alive') continue;
    for (const name of text.split(',')) {
      const trimmed = name.trim();
      // Content-Length is framing: who could list it away could make a body of unknown length.
      if (trimmed === 'close' || trimmed === 'keep-alive' || trimmed === 'content-length') continue;
      listed ??= new Set();
      listed.add(trimmed);
    }
  }
  return listed;
}

/** The values of a header, by its name in lower case; one for each line that has it. */
export function fieldValues(raw: readonly string[], name: string): string[] {
  const found: string[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const key = raw[index] ?? '';
    if (key.length === name.length && key.toLowerCase() === name) found.push(raw[index + 1] ?? '');
  }
  return found;
}
