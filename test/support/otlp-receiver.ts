import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { exportRequest, OtlpOptions } from '../../src/audit/shipping/otlp.ts';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { SINK } from './sink-scene.ts';

type ExportRequest = ReturnType<typeof exportRequest>;
export type ReceivedLog = ExportRequest['resourceLogs'][number]['scopeLogs'][number]['logRecords'][number];

/** The reply to a request; `break` closes its connection, `hang` keeps it open. */
export type OtlpReply =
  | { readonly status?: number; readonly headers?: Record<string, string>; readonly body?: string }
  | 'break'
  | 'hang';

/** A receiver of OTLP logs: over HTTP in JSON. */
export interface OtlpReceiver {
  readonly port: number;
  readonly endpoint: string;
  /** Requests that were read to their end, in order. */
  readonly requests: readonly { readonly headers: IncomingHttpHeaders; readonly request: ExportRequest }[];
  /** Replies to the next requests, one each; afterwards each gets an empty response with 200. */
  readonly replies: OtlpReply[];
  /** Records that were confirmed, in order. */
  readonly confirmed: readonly ReceivedLog[];
  /** Ends at once with all its connections, as a program that is killed. */
  close(): Promise<void>;
}

interface ServerOptions {
  readonly port?: number;
  readonly pair?: KeyPair;
}

export async function startOtlp({ port = 0, pair }: ServerOptions = {}): Promise<OtlpReceiver> {
  const path = '/v1/logs';
  const requests: { headers: IncomingHttpHeaders; request: ExportRequest }[] = [];
  const confirmed: ReceivedLog[] = [];
  const replies: OtlpReply[] = [];
  const listener: RequestListener = async (req, res) => {
    if (req.method !== 'POST' || req.url !== path) {
      res.writeHead(404).end();
      return;
    }
    const request = (await json(req)) as ExportRequest;
    requests.push({ headers: req.headers, request });
    const reply = replies.shift() ?? {};
    if (reply === 'hang') return;
    if (reply === 'break') {
      req.socket.destroy();
      return;
    }
    const { status = 200, headers = {}, body = '{}' } = reply;
    const scopes = request.resourceLogs.flatMap(({ scopeLogs }) => scopeLogs);
    if (status === 200) confirmed.push(...scopes.flatMap(({ logRecords }) => logRecords));
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
    confirmed,
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
