import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';
import { expect, test } from '@jest/globals';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { useFolders } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { authors } from '../../support/scene.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { startSimulator } from '../../support/simulator.ts';

const folder = useFolders();

/** One export of an SDK, as OTLP/HTTP carries it. */
interface Export {
  readonly path: string;
  readonly type: string;
  readonly body: Buffer;
}

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
}

interface TracesData {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly { key: string; value: { stringValue?: string } }[] };
    readonly scopeSpans: readonly { readonly spans: readonly Span[] }[];
  }[];
}

/** A collector that keeps every export. */
async function startCollector(): Promise<{ origin: string; exports: Export[] }> {
  const exports: Export[] = [];
  const { origin, close } = await startUpstream(async (req, res) => {
    const type = req.headers['content-type'] ?? '';
    exports.push({ path: req.url ?? '', type, body: await buffer(req) });
    res.writeHead(200, { 'content-type': type }).end(type === 'application/json' ? '{}' : '');
  });
  closing.push(close);
  return { origin, exports };
}

/** Starts a gateway in front of the simulator, sends it one request of this trace, and ends it. */
async function traceOneRequest(
  traceId: string,
  environment: Record<string, string>,
): Promise<{ gateway: GatewayProcess; status: number }> {
  const simulator = await closedAtEnd(startSimulator(defaultSettings()));
  const { origin } = simulator.deployments.submissions;
  const gateway = await startGatewayProcess(
    { submissions: { origin, ca: simulator.ca } },
    {},
    {
      environment: { PATH: process.env['PATH'] ?? '', ...environment },
    },
  );
  closing.push(() => gateway.close());
  const traceparent = `00-${traceId}-b7ad6b7169203331-01`;
  const { status } = await fetch(`${gateway.origin}${authors}`, { headers: { traceparent } });
  await gateway.close();
  return { gateway, status };
}

const newTraceId = (): string => randomBytes(16).toString('hex');

test('the spans of a request reach a collector if OTEL_EXPORTER_OTLP_ENDPOINT is set', async () => {
  const collector = await startCollector();
  const traceId = newTraceId();
  const { gateway, status } = await traceOneRequest(traceId, {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.origin,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
  });
  expect(status).toBe(200);
  expect(await gateway.ended).toBe(0);
  expect(gateway.logged.filter(({ msg }) => /traces|OpenTelemetry/.test(String(msg)))).toEqual([]);

  expect(new Set(collector.exports.map(({ path }) => path))).toEqual(new Set(['/v1/traces']));
  const data = collector.exports.map(({ body }): TracesData => JSON.parse(body.toString()));
  const resources = data.flatMap(({ resourceSpans }) => resourceSpans);
  for (const { resource } of resources) {
    expect(resource.attributes).toContainEqual({
      key: 'service.name',
      value: { stringValue: 'digest-gateway' },
    });
  }
  const spans = resources.flatMap(({ scopeSpans }) => scopeSpans).flatMap(({ spans }) => spans);
  const own = spans.filter((span) => span.traceId === traceId);
  const request = own.find(({ name }) => name === 'request');
  expect(request?.parentSpanId).toBe('b7ad6b7169203331');
  // One exchange for the challenge, one with the response to it.
  expect(own.filter(({ name }) => name === 'exchange')).toHaveLength(2);
  const ids = new Set(own.map(({ spanId }) => spanId));
  expect(own.filter((span) => span !== request && !ids.has(span.parentSpanId ?? ''))).toEqual([]);
});

test('the spans are sent as protobuf by default', async () => {
  const collector = await startCollector();
  const traceId = newTraceId();
  await traceOneRequest(traceId, { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.origin}/traces` });
  expect(collector.exports).not.toEqual([]);
  for (const { path, type } of collector.exports) {
    expect({ path, type }).toEqual({ path: '/traces', type: 'application/x-protobuf' });
  }
  const bodies = Buffer.concat(collector.exports.map(({ body }) => body));
  expect(bodies.includes(Buffer.from(traceId, 'hex'))).toBe(true);
});

test('an SDK that --import registers is used, and each span is sent once', async () => {
  const collector = await startCollector();
  const module = join(await folder(), 'tracing.mjs');
  const sdk = pathToFileURL(createRequire(import.meta.url).resolve('@opentelemetry/sdk-node'));
  await writeFile(
    module,
    `import { NodeSDK } from ${JSON.stringify(sdk)};
const sdk = new NodeSDK({ serviceName: 'own' });
sdk.start();
process.once('beforeExit', () => sdk.shutdown());
`,
  );
  const traceId = newTraceId();
  const { gateway } = await traceOneRequest(traceId, {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.origin,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    NODE_OPTIONS: `--import=${pathToFileURL(module)}`,
  });
  expect(await gateway.ended).toBe(0);
  const text = collector.exports.map(({ body }) => body.toString()).join('');
  expect(text).toContain('"stringValue":"own"');
  expect(text).not.toContain('{"key":"service.name","value":{"stringValue":"digest-gateway"}}');
  expect(text.split('"name":"request"')).toHaveLength(2);
});

test('a collector that refuses connections costs clients nothing, and the log has the reason', async () => {
  const collector = await startUpstream(() => {});
  await collector.close();
  const { gateway, status } = await traceOneRequest(newTraceId(), {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.origin,
    OTEL_EXPORTER_OTLP_TIMEOUT: '100',
  });
  expect(status).toBe(200);
  expect(await gateway.ended).toBe(0);
  expect(gateway.logged).toContainEqual(
    expect.objectContaining({ level: 'warn', reason: expect.stringContaining('ECONNREFUSED') }),
  );
});
