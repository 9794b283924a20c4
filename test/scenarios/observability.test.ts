import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import { describe, expect, jest, test } from '@jest/globals';
import { Tracing } from '../../src/tracing/tracing.ts';
import { auditOptions, useFolders } from '../support/audit-log.ts';
import { basic } from '../support/client-call.ts';
import { closing } from '../support/closing.ts';
import { setupFor, startGateway } from '../support/gateway.ts';
import { RawClient } from '../support/raw-client.ts';
import { recordTraces } from '../support/recorded-traces.ts';
import { authors, startScene } from '../support/scene.ts';
import { startRawUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';
import { echoOf, useWire, type Wire } from '../support/wire.ts';

const folder = useFolders();

describe('the log', () => {
  test('has each request without its query if log.requests is true; a reload changes that and the level', async () => {
    const settings = { match: { pathPrefix: '/api/' } };
    const pair = await startScene({ settings });
    const { gateway, simulator } = pair;
    const { origin } = simulator.deployments.submissions;
    const reload = async (log: Record<string, unknown>): Promise<void> => {
      const setup = await setupFor({ submissions: { origin, ca: simulator.ca, settings } }, { log });
      await gateway.app.reload(() => Promise.resolve(setup));
      gateway.logged.length = 0;
    };
    await (await pair.get(authors)).text();
    expect(gateway.logged).toEqual([]);

    await reload({ requests: true });
    const answer = await pair.get(authors, { headers: { 'x-request-id': 'a-request' } });
    const body = await answer.text();
    expect(gateway.logged).toEqual([
      expect.objectContaining({
        msg: 'request',
        requestId: 'a-request',
        client: 'anonymous',
        address: '127.0.0.1',
        deployment: 'submissions',
        operation: '',
        method: 'GET',
        path: authors.split('?')[0],
        status: 200,
        code: '',
        bytes: Buffer.byteLength(body),
        durationMs: expect.any(Number),
      }),
    ]);
    expect(JSON.stringify(gateway.logged)).not.toContain('DEMO-2026');

    const raw = await RawClient.open(gateway.port);
    await raw.send('GET /\x01 HTTP/1.1\r\nhost: a\r\n\r\n');
    const malformed = await raw.answer();
    raw.close();
    expect(gateway.logged.slice(1)).toEqual([
      expect.objectContaining({
        msg: 'request',
        requestId: JSON.parse(malformed.body.toString()).requestId,
        client: '',
        address: '127.0.0.1',
        path: '',
        status: 400,
        code: 'bad-request',
        bytes: malformed.body.length,
      }),
    ]);

    await reload({ requests: true, level: 'warn' });
    await (await pair.get(authors)).text();
    expect(gateway.logged).toEqual([]);

    const refused = await pair.get('/nowhere', { headers: { 'x-request-id': 'b-request' } });
    expect(refused.status).toBe(404);
    expect(gateway.logged).toEqual([]);
    await reload({ level: 'debug' });
    await (await pair.get('/nowhere', { headers: { 'x-request-id': 'c-request' } })).text();
    expect(gateway.logged).toEqual([
      expect.objectContaining({ level: 'debug', code: 'no-deployment', requestId: 'c-request' }),
    ]);
  });
});

test('health and metrics need no /proc, without which Node.js does not tell the memory', async () => {
  const { gateway } = await startScene({});
  const read = jest.spyOn(process.memoryUsage, 'rss').mockImplementation(() => {
    throw Object.assign(new Error('uv_resident_set_memory'), { code: 'ENOENT' });
  });
  closing.push(() => read.mockRestore());
  expect((await fetch(`${gateway.control}/readyz`)).status).toBe(200);
  expect((await fetch(`${gateway.control}/metrics`)).status).toBe(200);
});

describe('the metrics', () => {
  const wire = useWire({ settings: { match: { pathPrefix: '/api/' } } });

  /** Every series of the gateway in /metrics, without its value; those of Node.js come and go with what it does. */
  async function seriesOf({ gateway }: Pick<Wire, 'gateway'>): Promise<string[]> {
    const text = await (await fetch(`${gateway.control}/metrics`)).text();
    const lines = text.split('\n').filter((line) => line.startsWith('digest_gateway_'));
    return lines.map((line) => line.slice(0, line.lastIndexOf(' '))).sort();
  }

  /** One request of each kind that can be refused or answered, each with names that nobody sent before. */
  async function sendStrangeRequests(): Promise<void> {
    const word = randomUUID().replaceAll('-', '');
    const method = `M${word.slice(0, 8).toUpperCase()}`;
    const heads = [
      `GET /${word} HTTP/1.1\r\nHost: ${word}.example.org\r\n\r\n`,
      `GET http://${word}.example.org/ HTTP/1.1\r\nHost: ${word}.example.org\r\n\r\n`,
      `GET /api/${word}?site_name=${word}&${word}=1 HTTP/1.1\r\nHost: a\r\n\r\n`,
      `GET /api/${word} HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${word}\r\nUser-Agent: ${word}\r\n\r\n`,
      `GET /api/a HTTP/1.1\r\nHost: a\r\nX-Request-Id: ${word}\r\nAuthorization: ${basic('a', word)}\r\n\r\n`,
      `GET /api/a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic ${word.slice(1)}\r\n\r\n`,
      `PROPFIND /api/${word} HTTP/1.1\r\nHost: a\r\n\r\n`,
      `${method} /api/${word} HTTP/1.1\r\nHost: a\r\n\r\n`,
      `CONNECT ${word}:443 HTTP/1.1\r\nHost: ${word}:443\r\n\r\n`,
    ];
    for (const head of heads) await wire.ask(head);
  }

  test('get no series from methods, paths, hosts, clients and ids that a client chooses', async () => {
    await sendStrangeRequests();
    const before = await seriesOf(wire);
    for (let round = 0; round < 10; round += 1) await sendStrangeRequests();
    expect(await seriesOf(wire)).toEqual(before);
  });

  test('have one label for all unassigned statuses of a class, and one for those beyond 599', async () => {
    let status = 0;
    const upstream = await startRawUpstream(() => {
      status += 1;
      return `HTTP/1.1 ${status} X\r\nContent-Length: 0\r\nX-${randomUUID()}: a\r\n\r\n`;
    });
    await using gateway = await startGateway({
      upstream: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } },
    });
    const client = await RawClient.open(gateway.port);
    closing.push(upstream.close, () => client.close());
    for (status = 199; status < 999; ) {
      await client.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
      expect((await client.answer()).status).toBe(status === 401 ? 502 : status);
    }
    const labels = (await seriesOf({ gateway }))
      .filter((series) => series.startsWith('digest_gateway_requests_total{'))
      .map((series) => /status="([^"]*)"/.exec(series)?.[1]);
    const assigned = Object.keys(STATUS_CODES).filter((code) => code >= '200' && code !== '401');
    expect([...new Set(labels)].sort()).toEqual(
      [...assigned, '499', '2xx', '3xx', '4xx', '5xx', 'other'].sort(),
    );
    expect(await gateway.metric('digest_gateway_requests_total', { status: 'other' })).toBe(400);
  });

  test('count requests that the gateway failed from 0 on, also those whose response was broken off', async () => {
    const upstream = await startRawUpstream((head) =>
      head.startsWith('GET /own-error ')
        ? 'HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n'
        : { text: 'HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\nabc', end: true },
    );
    const settings = { match: { pathPrefix: '/' }, tls: { allowPlaintext: true } };
    await using gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
    closing.push(upstream.close);
    const results = (deployment: string) =>
      Promise.all(
        ['ok', 'failed'].map((result) =>
          gateway.metric('digest_gateway_request_results_total', { deployment, result }),
        ),
      );
    const shown = (await seriesOf({ gateway })).filter((series) => series.includes('request_results_total'));
    expect(shown).toHaveLength(4);
    const ask = async (request: string): Promise<void> => {
      const client = await RawClient.open(gateway.port);
      await client.send(`${request}\r\n\r\n`);
      await client.end();
    };
    await ask('GET /own-error HTTP/1.1\r\nHost: a\r\nConnection: close');
    await ask('GET /broken-off HTTP/1.1\r\nHost: a\r\nConnection: close');
    // What the gateway does not implement is no failure of its own.
    await ask('GET / HTTP/1.1\r\nHost: a\r\nConnection: close, upgrade\r\nUpgrade: websocket');
    await ask('NO-METHOD / HTTP/1.1\r\nHost: a');
    await until(async () => (await gateway.metric('digest_gateway_requests_total')) === 4);
    expect([await results('upstream'), await results('')]).toEqual([
      [1, 1],
      [2, 0],
    ]);
  });
});

describe('a trace', () => {
  const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
  const TRACEPARENT = `00-${TRACE_ID}-b7ad6b7169203331-01`;

  /** The Accept field of Prometheus 3. */
  const OPEN_METRICS =
    'application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1';

  /** The content type and text of `/metrics`. */
  async function scraped(control: string, accept: string): Promise<[type: string, text: string]> {
    const response = await fetch(`${control}/metrics`, { headers: { accept } });
    return [response.headers.get('content-type') ?? '', await response.text()];
  }

  async function askEcho(port: number): Promise<string | undefined> {
    const client = await RawClient.open(port);
    await client.send(`GET /echo HTTP/1.1\r\nHost: a\r\ntraceparent: ${TRACEPARENT}\r\nbaggage: a=1\r\n\r\n`);
    const { rawHeaders } = echoOf(await client.answer());
    client.close();
    expect(rawHeaders).not.toContain('tracestate');
    const at = rawHeaders.findIndex((name) => name.toLowerCase() === 'traceparent');
    return at === -1 ? undefined : rawHeaders[at + 1];
  }

  test('has spans for the request, the wait for a challenge and each exchange', async () => {
    const { tracer, spans } = recordTraces();
    const { get } = await startScene({ tracing: new Tracing(tracer) });
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

  test('is named by exemplars of the durations, with the request, in OpenMetrics', async () => {
    const { tracer, spans } = recordTraces();
    const { get, gateway } = await startScene({ tracing: new Tracing(tracer) });
    await (await get(authors, { headers: { 'x-request-id': 'a-request' } })).text();
    const [type, metrics] = await scraped(gateway.control, OPEN_METRICS);
    expect(type).toContain('application/openmetrics-text');
    const id = spans.find(({ name }) => name === 'request')?.traceId;
    expect(metrics).toMatch(
      new RegExp(
        `request_duration_seconds_bucket{.*} 1 # {trace_id="${id}",request_id="a-request"} 0\\.\\d+`,
      ),
    );
    expect(metrics).toMatch(/^digest_gateway_requests_total{.*} 1$/m);
    const [plainType, plain] = await scraped(gateway.control, 'text/plain, */*;q=0.1');
    expect(plainType).toContain('text/plain');
    expect(plain).not.toContain('trace_id');
  });

  test('is not named by exemplars where nothing is traced', async () => {
    const { get, gateway } = await startScene();
    await (await get(authors, { headers: { 'x-request-id': 'a-request' } })).text();
    expect((await scraped(gateway.control, OPEN_METRICS))[1]).not.toMatch(/ # {|a-request/);
  });

  test('has the error code of a failure', async () => {
    const { tracer, spans } = recordTraces();
    const { get } = await startScene({ password: 'wrong', tracing: new Tracing(tracer) });
    expect((await get(authors)).status).toBe(502);
    expect(spans.at(-1)).toMatchObject({
      name: 'request',
      attributes: { 'error.type': 'upstream-credential-refused', 'http.response.status_code': 502 },
    });
  });

  test('is passed to the upstream, by exchange, only where that is configured', async () => {
    const { tracer, spans } = recordTraces();
    const silent = await startScene({ tracing: new Tracing(tracer) });
    expect(await askEcho(silent.gateway.port)).toBeUndefined();

    const settings = { forwardTrace: true };
    const telling = await startScene({ settings, tracing: new Tracing(tracer) });
    const told = await askEcho(telling.gateway.port);
    const exchange = spans.findLast(({ name }) => name === 'exchange');
    expect(told).toBe(`00-${TRACE_ID}-${exchange?.id}-01`);

    const untraced = await startScene({ settings });
    expect(await askEcho(untraced.gateway.port)).toBe(TRACEPARENT);
    const neither = await startScene();
    expect(await askEcho(neither.gateway.port)).toBeUndefined();
  });

  test('has a span for the wait for the audit record', async () => {
    const { tracer, spans } = recordTraces();
    const audit = auditOptions(await folder());
    const { get } = await startScene({ audit, tracing: new Tracing(tracer) });
    await (await get(authors)).text();
    const request = spans.find(({ name }) => name === 'request');
    expect(spans.find(({ name }) => name === 'audit')?.parent).toBe(request?.id);
  });
});
