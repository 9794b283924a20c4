import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'undici';
import { watchStandstill } from '../test/support/measure.ts';

/** The place that clients send requests to. */
export interface LoadTarget {
  readonly name: string;
  readonly origin: string;
  /** Clients that send GET, and those that send POST; one connection each. */
  readonly gets: number;
  readonly posts: number;
  /** True: each request has a connection of its own. */
  readonly fresh?: boolean;
}

/** A request and how it ended. Times are those of `performance.now()`. */
export interface MarkedRequest {
  readonly id: string;
  /** Name of its target. */
  readonly via: string;
  readonly method: 'GET' | 'POST';
  readonly begun: number;
  readonly ended: number;
  /** Milliseconds of it in which this process stood still. */
  readonly stoodMs: number;
  /** Of a response that came completely; 0: none did. */
  readonly status: number;
  /** The code of a problem document, else that of the broken connection; empty if the status is 200. */
  readonly error: string;
  /** True: a gateway responded, and not what stands in front of it. */
  readonly fromGateway: boolean;
  /** A response that belongs to another request, as text; undefined: it belongs to this one. */
  readonly foreign: string | undefined;
}

export interface MarkedLoad {
  /** Resolves when the last request has ended; can be called again. */
  end(): Promise<void>;
}

/** The error of a request that got no response in `LIMIT_MS`, though its connection was not closed. */
export const NO_END = 'UND_ERR_HEADERS_TIMEOUT';
/** The most that a client waits for a response, in milliseconds: longer than all time limits on the way. */
const LIMIT_MS = 90_000;
/** Bytes of a request body. */
const BODY = 2_000;

/**
 * Clients that send requests one after the other to the simulator's `/echo`, each with a marker in its path, its body
 * and its X-Request-Id, which have to come back.
 * @param prefix of the request ids, so that they differ from those of other loads
 * @param onEnd called when a request has ended, however it did
 */
export function startMarkedLoad(
  prefix: string,
  targets: readonly LoadTarget[],
  pauseMs: number,
  onEnd: (request: MarkedRequest) => void,
): MarkedLoad {
  const stood = watchStandstill();
  let going = true;
  const client = async (target: LoadTarget, method: 'GET' | 'POST', name: string): Promise<void> => {
    const connection = new Client(target.origin, {
      pipelining: 1,
      headersTimeout: LIMIT_MS,
      bodyTimeout: LIMIT_MS,
    });
    for (let count = 0; going; count += 1) {
      const id = `${prefix}-${name}-${count}`;
      const [begun, stoodBefore] = [performance.now(), stood.ms()];
      const seen = await exchange(connection, method, id, target.fresh === true);
      const ended = performance.now();
      onEnd({ id, via: target.name, method, begun, ended, stoodMs: stood.ms() - stoodBefore, ...seen });
      await delay(pauseMs);
    }
    await connection.destroy();
  };
  const clients = targets.flatMap((target) => [
    ...Array.from({ length: target.gets }, (_, at) =>
      client(target, 'GET', `${target.name}-${target.fresh === true ? 'fresh' : 'get'}${at}`),
    ),
    ...Array.from({ length: target.posts }, (_, at) => client(target, 'POST', `${target.name}-post${at}`)),
  ]);
  const over = Promise.all(clients).finally(() => stood.end());
  return {
    async end() {
      going = false;
      await over;
    },
  };
}

type Seen = Pick<MarkedRequest, 'status' | 'error' | 'fromGateway' | 'foreign'>;

async function exchange(
  connection: Client,
  method: 'GET' | 'POST',
  id: string,
  reset: boolean,
): Promise<Seen> {
  const path = `/echo?marker=${id}`;
  const body = method === 'POST' ? id.repeat(Math.ceil(BODY / id.length)) : '';
  try {
    const response = await connection.request({
      path,
      method,
      reset,
      headers: { 'x-request-id': id },
      ...(method === 'POST' && { body }),
    });
    const text = await response.body.text();
    const { statusCode: status, headers } = response;
    const responseId = headers['x-request-id'];
    const fromGateway = responseId !== undefined;
    const ofOther = fromGateway && responseId !== id;
    const isEcho = status !== 200 || echoes(text, path, method, body);
    const foreign = ofOther || !isEcho ? `X-Request-Id ${responseId}: ${text}` : undefined;
    const [, code = fromGateway ? '' : 'no gateway'] = /"code":"([^"]+)"/.exec(text) ?? [];
    return { status, error: status === 200 ? '' : code, fromGateway, foreign };
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    return { status: 0, error: code ?? message, fromGateway: false, foreign: undefined };
  }
}

/** Whether the text is that of `/echo` for this request. */
function echoes(text: string, path: string, method: string, body: string): boolean {
  try {
    const seen = JSON.parse(text);
    const sha256 = createHash('sha256').update(body).digest('hex');
    return seen.url === path && seen.method === method && seen.body.sha256 === sha256;
  } catch {
    return false;
  }
}
