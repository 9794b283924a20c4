import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import {
  inboundLines,
  inboundTrailers,
  interimHeaders,
  outboundHeaders,
  ResponseFilter,
} from '../../src/gateway/headers.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';

const VIA = ['via', '1.1 digest-gateway'];
const FILTER = new ResponseFilter();
const hopByHop = [
  'Connection',
  'Keep-Alive',
  'Proxy-Connection',
  'Proxy-Authenticate',
  'Proxy-Authentication-Info',
  'TE',
  'Trailer',
  'Transfer-Encoding',
  'Upgrade',
];

/** Ways in which an upstream can write a line; the first one is the usual. */
const SPELLINGS: ((name: string, value: string) => string)[] = [
  (name, value) => `${name}: ${value}\r\n`,
  (name, value) => `${name}:${value}\r\n`,
  (name, value) => `${name}:${value} \r\n`,
  (name, value) => `${name}:\t${value}\r\n`,
  (name, value) => `${name}: \t ${value}\t\r\n`,
];

/** The fields that the client gets, but for a Date of the gateway: the same ones however the upstream wrote the lines. */
function inboundFields(
  raw: readonly string[],
  filter: ResponseFilter,
  status: number,
  requestId: string,
  trailers: boolean,
  isHttp11: boolean,
): string[] {
  const written = (lines: string): string => {
    const response = new UpstreamResponse(status, '', raw, isHttp11, undefined, lines);
    return inboundLines(response, filter, requestId, trailers);
  };
  const linesOf = (spellingOf: (index: number) => number): string => {
    const fields = Array.from({ length: raw.length / 2 }, (_, at) => [
      raw[2 * at] ?? '',
      raw[2 * at + 1] ?? '',
    ]);
    return fields
      .map(([name = '', value = ''], at) => SPELLINGS[spellingOf(at) % SPELLINGS.length]?.(name, value))
      .join('');
  };
  const text = written('');
  expect(written(linesOf(() => 0))).toBe(text);
  for (const first of SPELLINGS.keys()) expect(written(linesOf((at) => first + at))).toBe(text);
  for (const second of SPELLINGS.keys()) expect(written(linesOf((at) => (at % 2) * second))).toBe(text);
  const lines = text.trimEnd().split('\r\n');
  const own = raw.some((name) => name.toLowerCase() === 'date') ? [] : lines.splice(-3, 1);
  expect(own.every((line) => line.startsWith('Date: '))).toBe(true);
  return lines.flatMap((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]);
}

// Heads that are compared with each other have the same Date.
beforeAll(() => {
  jest.spyOn(Date, 'now').mockReturnValue(Date.now());
});
afterAll(() => {
  jest.restoreAllMocks();
});

describe('upstream goes', () => {
  test('every other header in its order and case, duplicates too, then Via', () => {
    const raw = ['X-b', '2', 'Accept', '*/*', 'x-B', '1', 'Accept', 'text/plain', 'Empty', ''];
    expect(outboundHeaders(raw, '1.1')).toEqual([...raw, ...VIA]);
  });

  test('fields whose names only resemble those that name the client', () => {
    const raw = [
      ...['X-SSL-Client', 'SSL-Clients', 'X-Webauth', 'XAmzn-Oidc-Data', 'X-Amz-Date', 'X-Amzn-Requestid'],
      ...['X-Ms-Client-Request-Id', 'X-Ms-Version', 'X-Goog-User-Project', 'X-Auth-Token', 'X-Auth-Requests'],
      ...['Remote-Id', 'X-Remote-Host', 'X-Client-Version', 'X-Client-Id', 'X-User', 'X-Token', 'Cf-Access'],
      ...['CloudFront', 'Client-Certificate-Id', '', '-', 'X'],
    ].flatMap((name) => [name, 'x']);
    expect(outboundHeaders(raw, '1.1')).toEqual([...raw, ...VIA]);
  });

  test('the context of a trace, where it is wanted', () => {
    const raw = [
      'traceparent',
      '00-1',
      'Tracestate',
      'a=1',
      'baggage',
      'b=2',
      'X-B3-TraceId',
      '1',
      'b3',
      '0',
      'uberctx-user',
      '3',
      'X-Datadog-Trace-Id',
      '4',
    ];
    expect(outboundHeaders([...raw, 'X-Api-Key', 'k'], '1.1', true)).toEqual([...raw, ...VIA]);
  });

  test.each([
    [['Via', '1.0 first'], '1.0 client-side, '],
    [
      ['Via', '1.0 first, HTTP/1.1 second:80 (squid)', 'via', '2 third'],
      '1.0 client-side, 1.1 client-side, 2 client-side, ',
    ],
    [['VIA', ' ,1.1  [::1]:80,\t1.0\tb, '], '1.1 client-side, 1.0 client-side, '],
    [['Via', '1.1, secret, internal/1.1 of-1.1, first.internal 1.1, 1.1 last'], '1.1 client-side, '],
    [['Via', ''], ''],
  ])('how many proxies came before, and not their names: %j', (raw, before) => {
    expect(outboundHeaders(['A', '1', ...raw], '1.1')).toEqual([
      'A',
      '1',
      'via',
      `${before}1.1 digest-gateway`,
    ]);
  });

  test('Via with the version of the request', () => {
    expect(outboundHeaders([], '1.0')).toEqual(['via', '1.0 digest-gateway']);
  });

  test.each([
    ...hopByHop,
    'Host',
    'Expect',
    'Authorization',
    'Proxy-Authorization',
    'Cookie',
    'X-Api-Key',
    'Forwarded',
    'X-Forwarded-For',
    'X-Forwarded-Host',
    'X-Forwarded-Port',
    'X-Forwarded-Proto',
    'X-Real-IP',
    'X_Forwarded_For',
    'X.Forwarded.For',
    'Client!Ip',
    'Content_Length',
    'Content.Length',
    'Transfer~Encoding',
    'X-Forwarded-User',
    'Client-Cert',
    'X-Auth-Request-Access-Token',
    'X-Amzn-Oidc-Data',
    'Cf-Access-Jwt-Assertion',
    'Cf-Access-Authenticated-User-Email',
    'X-Amzn-Mtls-Clientcert',
    'X-Amzn-Mtls-Clientcert-Serial-Number',
    'X-Forwarded-Client-Cert',
    'X-Forwarded-Tls-Client-Cert-Info',
    'SSL-Client-Cert',
    'SSL-Client-Subject-DN',
    'SSL_CLIENT_S_DN',
    'X-SSL-Client-S-DN',
    'X.Ssl~Client_CN',
    'X-Client-Cert',
    'X-Remote-User',
    'X-Remote-Group',
    'X-Remote-Extra-Scopes',
    'Remote-Groups',
    'Remote_Email',
    'Remote-Name',
    'X-Authentik-Username',
    'Tailscale-User-Login',
    'X-WebAuth-User',
    'X-MS-Client-Principal-Idp',
    'CloudFront-Viewer-Address',
    'Fly-Client-IP',
    'X-Nf-Client-Connection-Ip',
    'DO-Connecting-IP',
    'X-Vercel-Forwarded-For',
    'WL-Proxy-Client-IP',
    'Proxy-Client-IP',
    'Traceparent',
    'Tracestate',
    'Baggage',
    'b3',
    'X-B3-TraceId',
    'X-Amzn-Trace-Id',
    'X-Cloud-Trace-Context',
    'Uber-Trace-Id',
    'Sentry-Trace',
    'X_B3_TraceId',
    'Uber_Trace_Id',
    'Correlation-Context',
    'Elastic-Apm-Traceparent',
    'Grpc-Trace-Bin',
    'Newrelic',
    'X-Datadog-Trace-Id',
    'X_Datadog_Origin',
    'Uberctx-User',
    'Ot-Tracer-TraceId',
    'X-Dynatrace',
    'X-Instana-T',
  ])('no %s, in whatever case', (name) => {
    for (const written of [name, name.toLowerCase(), name.toUpperCase()]) {
      expect(outboundHeaders(['A', '1', written, 'x', 'B', '2'], '1.1')).toEqual([
        'A',
        '1',
        'B',
        '2',
        ...VIA,
      ]);
    }
  });
});

describe('to the client go', () => {
  test('the other headers in their order and case, then Via and the request id', () => {
    const raw = ['Date', 'today', 'X-b', '2', 'Via', '1.1 upstream', 'x-B', '1'];
    expect(inboundFields(raw, FILTER, 200, 'id-1', false, true)).toEqual([
      ...raw,
      ...VIA,
      'x-request-id',
      'id-1',
    ]);
  });

  test('in Via the version of the upstream', () => {
    const own = ['via', '1.0 digest-gateway', 'x-request-id', 'id-1'];
    expect(inboundFields(['Via', '1.1 other'], FILTER, 200, 'id-1', false, false)).toEqual([
      'Via',
      '1.1 other',
      ...own,
    ]);
  });

  test.each([
    ...hopByHop,
    'WWW-Authenticate',
    'Authentication-Info',
    'Set-Cookie',
    'Set-Cookie2',
    'X-Request-Id',
    'Strict-Transport-Security',
    'Clear-Site-Data',
    'Alt-Svc',
    'NEL',
    'Report-To',
    'Service-Worker-Allowed',
    'Proxy-Status',
    'Use-As-Dictionary',
    'CDN-Cache-Control',
    'Edge-Control',
    'Surrogate-Control',
    'X-Accel-Expires',
    'X-Accel-Limit-Rate',
    'X-Accel-Redirect',
    'X-Archive-Files',
    'X-Envoy-Degraded',
    'X-Envoy-Immediate-Health-Check-Fail',
    'X-Envoy-Overloaded',
    'X-LiteSpeed-Cache-Control',
    'X-LiteSpeed-Purge',
    'X-Sendfile-Temporary',
    'X-Sendfile',
    'X-Sendfile2',
    'Secure-Session-Registration',
  ])('no %s: not in the head, not before it, not after it', (name) => {
    const raw = ['A', '1', name, 'x', 'B', '2', name.toLowerCase(), 'y'];
    expect(inboundFields(raw, FILTER, 200, 'id', false, true)).toEqual([
      'A',
      '1',
      'B',
      '2',
      ...VIA,
      'x-request-id',
      'id',
    ]);
    expect(interimHeaders(raw, FILTER)).toEqual(['A', '1', 'B', '2']);
    expect(inboundTrailers(raw, [], FILTER)).toEqual(['A', '1', 'B', '2']);
  });

  test('a field that speaks for an origin where the deployment passes it', () => {
    const filter = new ResponseFilter(['alt-svc']);
    const raw = ['Alt-Svc', 'h3=":443"', 'NEL', '{}', 'Proxy-Status', 'evil; error=dns_error'];
    expect(inboundFields(raw, filter, 200, 'id', false, true)).toEqual([
      'Alt-Svc',
      'h3=":443"',
      ...VIA,
      'x-request-id',
      'id',
    ]);
  });

  test('the announcement of trailers where they can follow', () => {
    expect(inboundFields(['Trailer', 'X-Checksum'], FILTER, 200, 'id', true, true)).toEqual([
      ...['trailer', 'X-Checksum'],
      ...VIA,
      ...['x-request-id', 'id'],
    ]);
  });
});

describe('what Connection lists', () => {
  test('ends here, in whatever case and spacing, from several lines', () => {
    const raw = [
      'connection',
      'X-One ,\tx-two',
      'X-ONE',
      '1',
      'x-two',
      '2',
      'Connection',
      'x-three',
      'X-Three',
      '3',
    ];
    expect(outboundHeaders([...raw, 'X-Four', '4'], '1.1')).toEqual(['X-Four', '4', ...VIA]);
    expect(interimHeaders([...raw, 'X-Four', '4'], FILTER)).toEqual(['X-Four', '4']);
  });

  test('ends with the head, and with the trailers that follow it', () => {
    const trailers = ['X-Mine', '1', 'X-Kept', '2', 'x-mine', '3'];
    expect(inboundTrailers(trailers, ['Connection', 'x-mine'], FILTER)).toEqual(['X-Kept', '2']);
  });

  test('may have empty elements, which mean nothing', () => {
    const raw = ['Connection', ', ,X-One,,\t,X-Two,', 'X-One', '1', 'X-Two', '2', 'X-Three', '3'];
    expect(outboundHeaders(raw, '1.1')).toEqual(['X-Three', '3', ...VIA]);
  });

  test('never takes the length of the body away', () => {
    const raw = ['Connection', 'close, Content-Length', 'Content-Length', '5'];
    expect(outboundHeaders(raw, '1.1')).toEqual(['Content-Length', '5', ...VIA]);
  });

  test('is gone for every list of names, and nothing else is', () => {
    const name = fc.stringMatching(/^x-[a-z]{1,4}$/);
    fc.assert(
      fc.property(fc.array(name), fc.array(fc.tuple(name, fc.string())), (listed, pairs) => {
        const expected = pairs.filter(([key]) => !listed.includes(key)).flat();
        expect(interimHeaders(['Connection', listed.join(', '), ...pairs.flat()], FILTER)).toEqual(expected);
      }),
    );
  });
});
