import type { Dispatcher } from 'undici';
import type { Cancellation } from '../base/cancellation.ts';
import { asGatewayError } from '../base/errors.ts';
import type { Opening } from '../challenges/handshake-queue.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import { type ExchangeRequest, type ExchangeResult, exchange } from './exchange.ts';
import type { AnswerSink } from './sink.ts';

export interface ExchangeTracing {
  readonly deployment: string;
  /** Whether the upstream is told of the trace. */
  readonly forwardTrace: boolean;
}

/** `exchange` over these connections; a span of its own goes with it if the request is traced. */
export function exchangeThrough(connections: { readonly dispatcher: Dispatcher }, options: ExchangeTracing) {
  return (request: ExchangeRequest, sink: AnswerSink): Promise<ExchangeResult> =>
    request.trace === undefined
      ? exchange(connections.dispatcher, request, sink)
      : tracedExchange(request, request.trace, options, (told) =>
          exchange(connections.dispatcher, told, sink),
        );
}

async function tracedExchange(
  request: ExchangeRequest,
  trace: TracedWork,
  { deployment, forwardTrace }: ExchangeTracing,
  send: (request: ExchangeRequest) => Promise<ExchangeResult>,
): Promise<ExchangeResult> {
  const span = trace.call('exchange', {
    'http.request.method': request.method,
    'digest_gateway.deployment': deployment,
    'digest_gateway.authenticated': request.headers.includes('authorization'),
  });
  try {
    const told = forwardTrace ? { ...request, headers: [...request.headers, ...span.headers()] } : request;
    const result = await send(told);
    const status = result.kind === 'answered' ? result.status : 401;
    if (result.kind !== 'lost') span.describe({ 'http.response.status_code': status });
    span.end(result.kind === 'lost' ? result.error.code : '');
    return result;
  } catch (error) {
    span.end(asGatewayError(error).code);
    throw error;
  }
}

/** `pool.enter`, with a span for the wait if the request is traced. */
export async function enterTraced(
  pool: NoncePool,
  cancellation: Cancellation,
  trace: TracedWork | undefined,
): Promise<Nonce | Opening> {
  const span = trace?.child('challenge');
  try {
    return await pool.enter(cancellation);
  } finally {
    span?.end(cancellation.reason?.code);
  }
}
