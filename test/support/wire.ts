import { afterAll, beforeAll, beforeEach } from '@jest/globals';
import { closedAtEnd, closing } from './closing.ts';
import { type RunningGateway, startGateway } from './gateway.ts';
import { RawClient, type RawResponse } from './raw-client.ts';
import { openScene, type RunningScene, type SceneOptions } from './scene.ts';
import { startRawUpstream } from './scripted-upstream.ts';

/** A gateway in front of the simulator, and raw clients of it. */
export interface Wire {
  readonly simulator: RunningScene['simulator'];
  readonly gateway: RunningGateway;
  /** Closed after the test. */
  connect(): Promise<RawClient>;
  /** One request on a connection of its own. */
  ask(head: string, ...body: (string | Buffer)[]): Promise<RawResponse>;
}

/** Starts one for the tests of a file, or one for each of them. */
export function useWire(options: SceneOptions = {}, per: 'file' | 'test' = 'file'): Wire {
  // Clients are closed before the gateway, which would wait for them.
  const running = useRunning(() => openScene(options), per);
  return {
    get simulator() {
      return running().simulator;
    },
    get gateway() {
      return running().gateway;
    },
    connect: () => connect(running().gateway.port),
    ask: async (head, ...body) => {
      const client = await connect(running().gateway.port);
      await client.send(head, ...body);
      return client.answer(head.slice(0, head.indexOf(' ')));
    },
  };
}

/** A gateway in front of an upstream that answers everything with the same bytes. */
export interface Replies {
  /** Sets its response from now on; returns the gateway's port. */
  reply(bytes: string): number;
}

/** Starts one for the tests of a file. */
export function useReplies(): Replies {
  let replied = '';
  const running = useRunning(async () => {
    const upstream = await startRawUpstream(() => replied);
    const settings = { tls: { allowPlaintext: true } };
    const gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
    const close = async () => {
      await gateway.close();
      await upstream.close();
    };
    return { port: gateway.port, close };
  });
  return {
    reply: (bytes) => {
      replied = bytes;
      return running().port;
    },
  };
}

/** Starts something before the tests of a file, or before each test, and closes it after them. */
export function useRunning<T extends { close(): Promise<void> }>(
  start: () => Promise<T>,
  per: 'file' | 'test' = 'file',
): () => T {
  let running: T | undefined;
  if (per === 'file') {
    beforeAll(async () => {
      running = await start();
    });
    afterAll(() => running?.close());
  } else {
    beforeEach(async () => {
      const started = await start();
      running = started;
      // Behind the clients of the test, for which it would wait.
      closing.push(() => started.close());
    });
  }
  return () => {
    if (running === undefined) throw new Error('not started yet');
    return running;
  };
}

/** Opens a raw client, with `ca` (PEM) over TLS; what a test leaves open is closed after it. */
export async function connect(port: number, ca?: string): Promise<RawClient> {
  return closedAtEnd(RawClient.open(port, ca));
}

/** The request as the simulator's /echo saw it. */
export interface Echo {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: readonly string[];
  readonly body: { readonly length: number; readonly sha256: string };
}

/** @throws when the answer is no 200 */
export function echoOf({ status, body }: RawResponse): Echo {
  if (status !== 200) throw new Error(`${status}: ${body.toString()}`);
  return JSON.parse(body.toString('utf8'));
}

/** The code of a gateway's own refusal. @throws when it is none */
export function codeOf({ body }: RawResponse): string {
  const { code } = JSON.parse(body.toString('utf8'));
  return code;
}
