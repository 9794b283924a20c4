import { afterEach } from '@jest/globals';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { type Simulator, startSimulator } from '../../src/simulator/simulator.ts';
import { type RunningGateway, startGateway } from './running-gateway.ts';

/** A gateway in front of the simulator's submissions service, over TLS. */
export interface Pair {
  readonly simulator: Simulator<'submissions' | 'abstracts'>;
  readonly gateway: RunningGateway;
  /** Asks the gateway as a plain client does. */
  get(target: string, init?: RequestInit): Promise<Response>;
}

export const authors =
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123';

const open: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

/** Starts both; the test's end stops them. `settings` and `password` are the deployment's. */
export async function startPair(
  behaviour: BehaviourChange = {},
  { settings, password }: { settings?: Record<string, unknown>; password?: string } = {},
): Promise<Pair> {
  const { deployments } = defaultSettings();
  const simulator = await startSimulator({
    deployments: {
      ...deployments,
      submissions: { ...deployments.submissions, testPaths: true, ...behaviour },
    },
  });
  open.push(() => simulator.close());
  const { origin } = simulator.deployments.submissions;
  const deployment = {
    origin,
    ca: simulator.ca,
    settings: settings ?? {},
    ...(password !== undefined && { password }),
  };
  const gateway = await startGateway({ submissions: deployment });
  open.push(() => gateway.close());
  return { simulator, gateway, get: (target, init) => fetch(`${gateway.origin}${target}`, init) };
}

/** The problem document of a refused request. */
export async function problemOf(answer: Response): Promise<{ status: number; code: string; detail: string }> {
  return (await answer.json()) as { status: number; code: string; detail: string };
}
