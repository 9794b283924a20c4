import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { exportRequest, OtlpOptions } from '../../src/audit/shipping/otlp.ts';
import type { metricsRequest } from '../../src/metrics/otlp-metrics.ts';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { SINK } from './sink-scene.ts';

type ExportRequest = ReturnType<typeof exportRequest>;
export type MetricsRequest = ReturnType<typeof metricsRequest>;
export type ReceivedLog = ExportRequest['resourceLogs'][number]['scopeLogs'][number]['logRecords'][number];

/** The reply to a request; `break` closes its connection, `hang` keeps it open. */
export type OtlpReply =
  | { readonly status?: number; readonly headers?: Record<string, string>; readonly body?: string }
  | 'break'
  | 'hang';

/** A receiver of OTLP over HTTP in JSON. */
export interface OtlpServer<Request> {
  readonly port: number;
  readonly endpoint: string;
  /** Requests that were read to their end, in order. */
  readonly requests: readonly { readonly headers: IncomingHttpHeaders; readonly request: Request }[];
  /** Replies to the next requests, one each; afterwards each gets an empty response with 200. */
  readonly replies: OtlpReply[];
  /** Ends at once with all its connections, as a program that is killed. */
  close(): Promise<void>;
}

/** A receiver of OTLP logs. */
export interface OtlpReceiver extends OtlpServer<ExportRequest> {
  /** Records that were confirmed, in order. */
  readonly confirmed: readonly ReceivedLog[];
}

interface ServerOptions {
  readonly port?: number;
  readonly pair?: KeyPair;
}

export async function startOtlp(options: ServerOptions = {}): Promise<OtlpReceiver> {
  const confirmed: ReceivedLog[] = [];
  const server = await startServer<ExportRequest>('/v1/logs', options, ({ resourceLogs }) => {
    const scopes = resourceLogs.flatMap(({ scopeLogs }) => scopeLogs);
    confirmed.push(...scopes.flatMap(({ logRecords }) => logRecords));
  });
  return { ...server, confirmed };
}

/** A receiver of OTLP metrics. */
export function startOtlpMetrics(options: ServerOptions = {}): Promise<OtlpServer<MetricsRequest>> {
  return startServer('/v1/metrics', options);
}

async function startServer<Request>(
  path: string,
  { port = 0, pair }: ServerOptions,
  onConfirmed: (request: Request) => void = () => {},
): Promise<OtlpServer<Request>> {
  const requests: { headers: IncomingHttpHeaders; request: Request }[] = [];
  const replies: OtlpReply[] = [];
  const listener: RequestListener = async (req, res) => {
    if (req.method !== 'POST' || req.url !== path) {
      res.writeHead(404).end();
      return;
    }
    const request = (await json(req)) as Request;
    requests.push({ headers: req.headers, request });
    const reply = replies.shift() ?? {};
    if (reply === 'hang') return;
    if (reply === 'break') {
      req.socket.destroy();
      return;
    }
    const { status = 200, headers = {}, body = '{}' } = reply;
    if (status === 200) onConfirmed(request);
    res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
  };
  const server = pair === undefined ? createServer(listener) : createTlsServer(pair, listener);
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const { port: own } = server.address() as AddressInfo;
  return {
    port: own,
    endpoint: `${pair === undefined ? 'http' : 'https'}://127.0.0.1:${own}${path}`,
    requests,
    replies,
    async close() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** The lines of the log in these records. */
export function linesIn(records: readonly ReceivedLog[]): string[] {
  return records.map(({ body }) => body.stringValue);
}

/** A sink to a receiver. */
export function otlpTo(
  { endpoint }: Pick<OtlpReceiver, 'endpoint'>,
  change: Partial<OtlpOptions> = {},
): OtlpOptions {
  return {
    kind: 'otlp',
    name: SINK,
    timeout: 60_000,
    endpoint,
    headers: new Map(),
    tls: undefined,
    ...change,
  };
}

/** Values by the name of their series and its labels, as `/metrics` writes them; the labels are sorted. */
export type SeriesValues = Readonly<Record<string, number>>;

/** The metrics of an export. */
export function metricsOf({ resourceMetrics }: MetricsRequest) {
  const scopes = resourceMetrics.flatMap(({ scopeMetrics }) => scopeMetrics);
  return scopes.flatMap(({ metrics }) => metrics);
}

/** The values of the gateway's own metrics in the text of `/metrics`. */
export function seriesOfText(text: string): SeriesValues {
  const lines = text.split('\n').filter((line) => line.startsWith('digest_gateway_'));
  return Object.fromEntries(
    lines.map((line) => {
      const [, name = '', labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      const pairs = Array.from(labels.matchAll(/(\w+)="([^"]*)"/g), ([, key, text]) => `${key}=${text}`);
      return [keyOf(name, pairs), Number(value)];
    }),
  );
}

/** The values of the gateway's own metrics in an export. A histogram has the series that `/metrics` has for it. */
export function seriesOfExport(request: MetricsRequest): SeriesValues {
  const own = metricsOf(request).filter(({ name }) => name.startsWith('digest_gateway_'));
  return Object.fromEntries(own.flatMap((metric) => [...seriesOf(metric)]));
}

function* seriesOf(metric: ReturnType<typeof metricsOf>[number]): Generator<[string, number]> {
  const { name } = metric;
  if (!('histogram' in metric)) {
    const { dataPoints } = 'gauge' in metric ? metric.gauge : metric.sum;
    for (const { attributes, asDouble } of dataPoints)
      yield [keyOf(name, pairsOf(attributes)), Number(asDouble)];
    return;
  }
  for (const { attributes, count, sum, bucketCounts, explicitBounds } of metric.histogram.dataPoints) {
    const pairs = pairsOf(attributes);
    let cumulative = 0;
    for (const [at, observed] of bucketCounts.entries()) {
      cumulative += Number(observed);
      yield [keyOf(`${name}_bucket`, [...pairs, `le=${explicitBounds[at] ?? '+Inf'}`]), cumulative];
    }
    yield [keyOf(`${name}_sum`, pairs), Number(sum)];
    yield [keyOf(`${name}_count`, pairs), Number(count)];
  }
}

function pairsOf(attributes: readonly { key: string; value: { stringValue: string } }[]): string[] {
  return attributes.map(({ key, value }) => `${key}=${value.stringValue}`);
}

function keyOf(name: string, pairs: readonly string[]): string {
  return [name, ...pairs.toSorted()].join(' ');
}
