import { expect, test } from '@jest/globals';
import { Tracing } from '../../src/tracing/tracing.ts';
import { auditOptions, useFolders } from '../support/audit-log.ts';
import { RawClient } from '../support/raw-client.ts';
import { recordTraces } from '../support/recorded-traces.ts';
import { authors, startPair } from '../support/simulated-pair.ts';
import { echoOf } from '../support/wire.ts';

const folder = useFolders();
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const TRACEPARENT = `00-${TRACE_ID}-b7ad6b7169203331-01`;

async function askEcho(port: number): Promise<string | undefined> {
  const client = await RawClient.open(port);
  await client.send(`GET /echo HTTP/1.1\r\nHost: a\r\ntraceparent: ${TRACEPARENT}\r\nbaggage: a=1\r\n\r\n`);
  const { rawHeaders } = echoOf(await client.answer());
  client.close();
  expect(rawHeaders).not.toContain('tracestate');
  const at = rawHeaders.findIndex((name) => name.toLowerCase() === 'traceparent');
  return at === -1 ? undefined : rawHeaders[at + 1];
}

test('a request, the wait for a challenge and each exchange are spans of the client’s trace', async () => {
  const { tracer, spans } = recordTraces();
  const { get } = await startPair({}, { tracing: new Tracing(tracer) });
  const answer = await get(authors, { headers: { traceparent: TRACEPARENT, 'x-request-id': 'a-request' } });
  expect([answer.status, (await answer.text()).length > 0]).toEqual([200, true]);
  const request = spans.find(({ name }) => name === 'request');
  expect(request).toMatchObject({
    kind: 'SERVER',
    traceId: TRACE_ID,
    parent: 'b7ad6b7169203331',
    events: ['challenge'],
    attributes: {
      'digest_gateway.request_id': 'a-request',
      'digest_gateway.client': 'anonymous',
      'digest_gateway.deployment': 'submissions',
      'http.request.method': 'GET',
      'http.response.status_code': 200,
    },
  });
  const parts = spans.filter(({ parent }) => parent === request?.id);
  expect(
    parts.map(({ name, kind, attributes }) => [name, kind, attributes['http.response.status_code']]),
  ).toEqual([
    ['challenge', 'INTERNAL', undefined],
    ['exchange', 'CLIENT', 401],
    ['exchange', 'CLIENT', 200],
  ]);
  expect(parts.map(({ attributes }) => attributes['digest_gateway.authenticated'])).toEqual([
    undefined,
    false,
    true,
  ]);
  expect(JSON.stringify(spans)).not.toMatch(/nonce|demo-api-key|DEMO-2026/);

  await (await get(authors)).text();
  const second = spans.filter(({ traceId }) => traceId !== TRACE_ID);
  expect(second.map(({ name }) => name)).toEqual(['exchange', 'request']);
});

test('durations name a trace that took as long, where traces are kept', async () => {
  const { tracer, spans } = recordTraces();
  const { get, gateway } = await startPair({}, { tracing: new Tracing(tracer) });
  await (await get(authors)).text();
  const answer = await fetch(`${gateway.control}/metrics`);
  expect(answer.headers.get('content-type')).toContain('application/openmetrics-text');
  const id = spans.find(({ name }) => name === 'request')?.traceId;
  const metrics = await answer.text();
  expect(metrics).toMatch(new RegExp(`request_duration_seconds_bucket{.*} 1 # {trace_id="${id}"} 0\\.\\d+`));
  expect(metrics).toMatch(/^digest_gateway_requests_total{.*} 1$/m);

  const untraced = await startPair();
  await (await untraced.get(authors)).text();
  const plain = await fetch(`${untraced.gateway.control}/metrics`);
  expect(plain.headers.get('content-type')).toContain('text/plain');
  expect(await plain.text()).not.toContain('trace_id');
});

test('a failure is told by its code', async () => {
  const { tracer, spans } = recordTraces();
  const { get } = await startPair({}, { password: 'wrong', tracing: new Tracing(tracer) });
  expect((await get(authors)).status).toBe(502);
  expect(spans.at(-1)).toMatchObject({
    name: 'request',
    attributes: { 'error.type': 'upstream-credential-refused', 'http.response.status_code': 502 },
  });
});

test('the upstream is told of a trace only where it is configured, and of the exchange then', async () => {
  const { tracer, spans } = recordTraces();
  const silent = await startPair({}, { tracing: new Tracing(tracer) });
  expect(await askEcho(silent.gateway.port)).toBeUndefined();

  const settings = { forwardTrace: true };
  const telling = await startPair({}, { settings, tracing: new Tracing(tracer) });
  const told = await askEcho(telling.gateway.port);
  const exchange = spans.findLast(({ name }) => name === 'exchange');
  expect(told).toBe(`00-${TRACE_ID}-${exchange?.id}-01`);

  const untraced = await startPair({}, { settings });
  expect(await askEcho(untraced.gateway.port)).toBe(TRACEPARENT);
  const neither = await startPair();
  expect(await askEcho(neither.gateway.port)).toBeUndefined();
});

test('the wait for its record is a span where records are kept', async () => {
  const { tracer, spans } = recordTraces();
  const audit = auditOptions(await folder());
  const { get } = await startPair({}, { audit, tracing: new Tracing(tracer) });
  await (await get(authors)).text();
  const request = spans.find(({ name }) => name === 'request');
  expect(spans.find(({ name }) => name === 'audit')?.parent).toBe(request?.id);
});
