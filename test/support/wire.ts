import { afterAll, afterEach, beforeAll } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { type Simulator, startSimulator } from '../../src/simulator/simulator.ts';
import type { RawAnswer } from './raw-answer.ts';
import { RawClient } from './raw-client.ts';
import { type RunningGateway, startGateway } from './running-gateway.ts';

/** A gateway before a simulator that serves the test paths, and raw clients of it. */
export interface Wire {
  readonly simulator: Simulator<'upstream'>;
  readonly gateway: RunningGateway;
  /** Closed after the test. */
  connect(): Promise<RawClient>;
  /** One request on a connection of its own. */
  ask(head: string, ...body: (string | Buffer)[]): Promise<RawAnswer>;
}

export interface WireOptions {
  readonly behaviour?: BehaviourChange;
  /** Of the deployment, beyond the defaults. */
  readonly settings?: Record<string, unknown>;
}

/** Starts one for the tests of a file. */
export function useWire({ behaviour = {}, settings = {} }: WireOptions = {}): Wire {
  const running = useRunning(async () => {
    const simulator = await startSimulator({
      deployments: {
        upstream: { kind: 'submissions', family: 'manuscripts', testPaths: true, ...behaviour },
      },
    });
    const { origin } = simulator.deployments.upstream;
    const gateway = await startGateway({ upstream: { origin, ca: simulator.ca, settings } });
    const close = async () => {
      await gateway.close();
      await simulator.close();
    };
    return { simulator, gateway, close };
  });
  const connect = useClients();
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

/** Starts something before the tests of a file and closes it after them. */
export function useRunning<T extends { close(): Promise<void> }>(start: () => Promise<T>): () => T {
  let running: T | undefined;
  beforeAll(async () => {
    running = await start();
  });
  afterAll(() => running?.close());
  return () => {
    if (running === undefined) throw new Error('not started yet');
    return running;
  };
}

/** Opens raw clients; what a test leaves open is closed after it. */
export function useClients(): (port: number) => Promise<RawClient> {
  const clients: RawClient[] = [];
  afterEach(() => {
    for (const client of clients.splice(0)) client.close();
  });
  return async (port) => {
    const client = await RawClient.open(port);
    clients.push(client);
    return client;
  };
}

/** What the simulator's /echo saw. */
export interface Echo {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: readonly string[];
  readonly body: { readonly length: number; readonly sha256: string };
}

/** @throws when the answer is no 200 */
export function echoOf({ status, body }: RawAnswer): Echo {
  if (status !== 200) throw new Error(`${status}: ${body.toString()}`);
  return JSON.parse(body.toString('utf8'));
}

/** The code of a gateway's own refusal. @throws when it is none */
export function codeOf({ body }: RawAnswer): string {
  const { code } = JSON.parse(body.toString('utf8'));
  return code;
}
