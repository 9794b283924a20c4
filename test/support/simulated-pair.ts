import type { AuditOptions } from '../../src/audit/audit.ts';
import type { Clock } from '../../src/base/clock.ts';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import type { Tracing } from '../../src/tracing/tracing.ts';
import { closing } from './closing.ts';
import { type RunningGateway, type StartOptions, startGateway } from './gateway.ts';
import { startRelay } from './relay.ts';
import { authors, startSimulator } from './simulator.ts';

/** A gateway in front of the simulator's submissions service, over TLS. */
export interface Pair extends AsyncDisposable {
  readonly simulator: Simulator<'submissions' | 'abstracts'>;
  readonly gateway: RunningGateway;
  /** Asks the gateway as a plain client does. */
  get(target: string, init?: RequestInit): Promise<Response>;
  close(): Promise<void>;
}

export interface PairOptions {
  readonly behaviour?: BehaviourChange;
  /** Settings of the deployment, beyond the defaults. */
  readonly settings?: Record<string, unknown>;
  /** Sections of the gateway's configuration, beyond its deployments. */
  readonly top?: Record<string, unknown>;
  readonly password?: string;
  /** As the configuration has it, in place of user name and password. */
  readonly credential?: Record<string, unknown>;
  /** More credentials, as the configuration has them. */
  readonly credentials?: Record<string, unknown>;
  /** PEM of the authority of the deployment's proxy. */
  readonly proxyCa?: string;
  readonly clock?: Clock;
  readonly audit?: AuditOptions;
  readonly tracing?: Tracing;
  /** How the gateway is run otherwise. */
  readonly run?: StartOptions;
  /** True: between the two, connections are not equally fast. Else what starts a relay to this port. */
  readonly relay?: boolean | ((port: number) => Promise<{ readonly port: number; close(): Promise<void> }>);
}

export { authors };

/** Starts both for one test, which stops them at its end. */
export async function startPair(
  behaviour: BehaviourChange = {},
  options: Omit<PairOptions, 'behaviour'> = {},
): Promise<Pair> {
  const pair = await openPair({ behaviour, ...options });
  closing.push(pair.close);
  return pair;
}

/** Starts both; the caller closes them, or declares them with `await using`. */
export async function openPair(options: PairOptions = {}): Promise<Pair> {
  const {
    behaviour = {},
    settings = {},
    top = {},
    password,
    clock,
    audit,
    credential,
    credentials,
    proxyCa,
    tracing,
  } = options;
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true, ...behaviour };
  const simulator = await startSimulator({ deployments: { ...deployments, submissions } });
  const { port } = simulator.deployments.submissions;
  const relay = await relayTo(port, options.relay);
  const origin = `https://127.0.0.1:${relay?.port ?? port}`;
  const deployment = {
    origin,
    ca: simulator.ca,
    settings,
    ...(password !== undefined && { password }),
    ...(proxyCa !== undefined && { proxyCa }),
  };
  const gateway = await startGateway(
    { submissions: deployment },
    { ...top, credentials: { ...credentials, ...(credential !== undefined && { submissions: credential }) } },
    {
      ...options.run,
      ...(clock !== undefined && { clock }),
      ...(audit !== undefined && { audit }),
      ...(tracing !== undefined && { tracing }),
    },
  );
  const close = async (): Promise<void> => {
    await gateway.close();
    await relay?.close();
    await simulator.close();
  };
  return {
    simulator,
    gateway,
    get: (target, init) => fetch(`${gateway.origin}${target}`, init),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function relayTo(port: number, relay: PairOptions['relay'] = false) {
  if (relay === false) return undefined;
  return relay === true ? startRelay(port, (index) => ({ requestMs: (index * 7) % 20 })) : relay(port);
}

/** The problem document of a refused request. */
export async function problemOf(answer: Response): Promise<{ status: number; code: string; detail: string }> {
  return (await answer.json()) as { status: number; code: string; detail: string };
}
