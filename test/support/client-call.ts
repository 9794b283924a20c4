import { once } from 'node:events';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { type AgentOptions, Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import type { RunningGateway } from './gateway.ts';
import { authors } from './scene.ts';

/** How a client calls: from where, with what. */
export interface Call {
  /** One of 127.0.0.0/8: each counts as a machine of its own. */
  readonly from?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly target?: string;
  /** CA, certificate and key of the client. */
  readonly tls?: AgentOptions;
  /** To reuse connections; otherwise each call has its own. */
  readonly agent?: HttpAgent | HttpsAgent;
}

export interface Called {
  readonly status: number;
  readonly body: string;
  /** Code of the gateway's own refusal; empty: it did not refuse. */
  readonly code: string;
  readonly detail: string;
  readonly retryAfter: string | undefined;
}

/** Sends one request to a gateway. Rejects when the connection fails. */
export async function call(
  { origin }: Pick<RunningGateway, 'origin'>,
  { from = '127.0.0.1', headers = {}, target = authors, tls = {}, agent }: Call = {},
): Promise<Called> {
  const options = { headers, localAddress: from };
  const sent = origin.startsWith('https:')
    ? httpsRequest(`${origin}${target}`, { ...options, ...tls, agent: agent ?? new HttpsAgent(tls) })
    : httpRequest(`${origin}${target}`, { ...options, agent: agent ?? new HttpAgent() });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const body = await text(answer);
  const own = answer.headers['content-type'] === 'application/problem+json';
  const { code, detail } = own ? JSON.parse(body) : { code: '', detail: '' };
  const retryAfter = answer.headers['retry-after'];
  return { status: answer.statusCode ?? 0, body, code, detail, retryAfter };
}

/** How often requests were counted for a client; empty: for nobody known. */
export function requestsOf(gateway: Pick<RunningGateway, 'metric'>, client: string): Promise<number> {
  return gateway.metric('digest_gateway_requests_total', { client });
}

export const basic = (id: string, key: string): string =>
  `Basic ${Buffer.from(`${id}:${key}`).toString('base64')}`;
