import type { SecureVersion } from 'node:tls';
import { beforeAll } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { type Clock, monotonicClock } from '../../src/base/clock.ts';
import { asGatewayError } from '../../src/base/errors.ts';
import type { Message, RequestContext } from '../../src/handshake/exchange.ts';
import type { UpstreamResponse } from '../../src/handshake/response.ts';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { type ConnectionOptions, Connections } from '../../src/transport/connections.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import {
  type ScriptedConnections,
  startConnections,
  type UpstreamConnection,
} from '../support/scripted-upstream.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

/** Outcome of an exchange: the status lines of all its responses, the body, and the error if it failed. */
export interface Outcome {
  /** `answered`, `challenged`, `lost: CODE`, or the code of the error. */
  readonly kind: string;
  readonly responses: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

/** Reads the body of a response to its end; of a piece that came, `onPiece` is told. */
export type ReadBody = (response: UpstreamResponse, onPiece: (piece: Buffer) => void) => Promise<void>;

/** Of a message and the request that it is sent for. */
type Change = Partial<Omit<Message, 'request'> & RequestContext>;

export interface ExchangeScene {
  readonly upstream: ScriptedConnections;
  readonly connections: Connections;
  send(change?: Change, read?: ReadBody): Promise<Outcome>;
}

export interface ExchangeSceneOptions {
  readonly tls?: boolean;
  /** Most connections. */
  readonly connections?: number;
  readonly timeouts?: Partial<ConnectionOptions['timeouts']>;
  /** False: the certificate of the upstream is of an unknown authority. */
  readonly trusted?: boolean;
  readonly clock?: Clock;
  /** Resolves to the port that leads to this port of the upstream; left out: the same. */
  readonly through?: (port: number) => Promise<number>;
  /** Of TLS; left out: as high as both can. */
  readonly maxVersion?: SecureVersion;
}

export type StartScene = (
  script: (connection: UpstreamConnection) => Promise<void>,
  options?: ExchangeSceneOptions,
) => Promise<ExchangeScene>;

/** Exchanges with upstreams that follow scripts. All of it ends after each test. */
export function useExchanges(): StartScene {
  let ca = '';
  let pair: KeyPair | undefined;
  beforeAll(async () => {
    const authority = await createTestAuthority();
    ca = authority.ca;
    pair = await authority.server();
  });
  return async (script, options = {}) => {
    const {
      tls = true,
      connections: most = 1,
      timeouts = {},
      trusted = true,
      clock = monotonicClock,
      through = async (port) => port,
      maxVersion,
    } = options;
    const limited = pair && { ...pair, ...(maxVersion !== undefined && { maxVersion }) };
    const upstream = await startConnections(script, tls ? limited : undefined);
    closing.push(() => upstream.close());
    const connections = new Connections(
      {
        origin: await originThrough(upstream.origin, through),
        connections: most,
        timeouts: { connect: 20_000, response: 20_000, idle: 20_000, ...timeouts },
        tls: {
          ...USUAL_TLS,
          ca: trusted ? ca : undefined,
        },
        egress: { localAddress: undefined, proxy: undefined },
      },
      clock,
    );
    closing.push(() => connections.close());
    return { upstream, connections, send: (...args) => send(connections, ...args) };
  };
}

async function originThrough(origin: string, through: (port: number) => Promise<number>): Promise<string> {
  const { protocol, hostname, port } = new URL(origin);
  return `${protocol}//${hostname}:${await through(Number(port))}`;
}

async function readAll(response: UpstreamResponse, onPiece: (piece: Buffer) => void): Promise<void> {
  for (;;) {
    const { isWhole } = response;
    response.take().forEach(onPiece);
    if (isWhole) return;
    await response.more();
  }
}

async function send(
  connections: Connections,
  change: Change = {},
  read: ReadBody = readAll,
): Promise<Outcome> {
  const responses: string[] = [];
  let trailers: readonly string[] = [];
  let body = '';
  let kind = 'answered';
  const request: RequestContext = {
    client: '',
    cancellation: new Cancellation(),
    interim: { information: (status) => void responses.push(`${status}`) },
    ...change,
  };
  const message: Message = { method: 'GET', target: '/', headers: [], body: null, ...change, request };
  try {
    const response = await connections.exchange(message);
    if (response.kind === 'lost') {
      kind = `lost: ${response.error.code}`;
    } else if (response.status === 401) {
      kind = 'challenged';
      await response.discard();
    } else {
      responses.push(`${response.status} ${response.reason}`);
      await read(response, (piece) => {
        body += piece.toString('latin1');
      });
      trailers = response.trailers;
    }
  } catch (error) {
    kind = asGatewayError(error).code;
  }
  return { kind, responses, body, trailers };
}
