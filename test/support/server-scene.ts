import type { Readable } from 'node:stream';
import { expect } from '@jest/globals';
import { Pool } from 'undici';
import { closedAtEnd, closing } from './closing.ts';
import { type RunningGateway, startGateway, type TestDeployment } from './gateway.ts';
import { echoOf, type Logged, type RealServer } from './real-server.ts';

export interface Ask {
  readonly method?: 'GET' | 'HEAD' | 'POST' | 'PUT';
  readonly body?: string | Buffer | Readable;
}

export interface Seen {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly body: string;
}

/** A gateway before one real server, and a client that knows nothing of Digest. */
export interface ServerScene {
  readonly gateway: RunningGateway;
  /** The target goes out byte for byte. */
  ask(target: string, ask?: Ask): Promise<Seen>;
  /** `upstream_attempts_total` by result, those that are 0 left out. */
  attempts(): Promise<Record<string, number>>;
  readonly server: RealServer;
  /** Stops the server; resolves to every request that it saw. */
  stop(): Promise<Logged[]>;
}

const RESULTS = ['ok', 'challenged', 'stale', 'refused', 'error'];

/** Starts a gateway before this server, with a relay in between where one is given; all of it ends after the test. */
export async function startServerScene(
  starting: Promise<RealServer>,
  change: Partial<TestDeployment> = {},
  relayTo?: (port: number) => Promise<{ readonly port: number; close(): Promise<void> }>,
): Promise<ServerScene> {
  const server = await closedAtEnd(starting);
  const relay = await relayTo?.(Number(new URL(server.deployment.origin).port));
  if (relay !== undefined) closing.push(() => relay.close());
  const origin = relay === undefined ? server.deployment.origin : `https://127.0.0.1:${relay.port}`;
  const gateway = await closedAtEnd(startGateway({ real: { ...server.deployment, origin, ...change } }));
  const client = new Pool(gateway.origin);
  closing.push(() => client.close());
  return {
    gateway,
    server,
    ask: async (path, { method = 'GET', body } = {}) => {
      const answer = await client.request({ path, method, body: body ?? null });
      return { status: answer.statusCode, headers: answer.headers, body: await answer.body.text() };
    },
    attempts: async () => {
      const name = 'digest_gateway_upstream_attempts_total';
      const counts = await Promise.all(RESULTS.map((result) => gateway.metric(name, { result })));
      const pairs = RESULTS.map((result, index) => [result, counts[index] ?? 0] as const);
      return Object.fromEntries(pairs.filter(([, count]) => count > 0));
    },
    stop: () => server.stop(),
  };
}

/** Two crowds of clients, all at once: each gets its own answer, and no credential is called refused. */
export async function expectCrowdsServed(scene: ServerScene, clients: number): Promise<void> {
  const targets = Array.from({ length: clients }, (_, index) => `/api/abstracts?client=${index}`);
  for (const round of [1, 2]) {
    const seen = await Promise.all(targets.map((target) => scene.ask(target)));
    expect([round, seen.map(({ body }) => body)]).toEqual([
      round,
      targets.map((target) => echoOf('GET', target)),
    ]);
  }
  const { refused = 0, error = 0 } = await scene.attempts();
  expect({ refused, error }).toEqual({ refused: 0, error: 0 });
  // The gateway's own requests, which find out whether a credential is good, are HEAD.
  const served = (await scene.stop()).filter(({ status, method }) => status === 200 && method === 'GET');
  expect(served).toHaveLength(2 * clients);
}
