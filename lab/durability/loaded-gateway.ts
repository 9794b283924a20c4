import { setTimeout as delay } from 'node:timers/promises';
import { defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import type { TopLevel } from '../../test/support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { startSimulator } from '../../test/support/simulator.ts';
import { startMarkedLoad } from '../marked-load.ts';

export type Upstream = Simulator<'submissions' | 'abstracts'>;

/** Clients that ask without a pause worth mentioning. */
const CLIENTS = { gets: 6, posts: 2 };
const PAUSE_MS = 1;
/** So many responses come before a kill: at least one client has had a second one. */
const FIRST_RESPONSES = CLIENTS.gets + CLIENTS.posts + 1;

export function startUpstream(): Promise<Upstream> {
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true, qop: 'auth' as const };
  return startSimulator({ deployments: { ...deployments, submissions } });
}

export function startBefore(simulator: Upstream, top: TopLevel): Promise<GatewayProcess> {
  const { origin } = simulator.deployments.submissions;
  return startGatewayProcess({ upstream: { origin, ca: simulator.ca } }, top);
}

export interface Responses {
  /** Ids of the requests whose response of status 200 came completely. */
  readonly ids: readonly string[];
  /** Requests that failed, the ends of connections among them. */
  readonly failed: number;
  /** Responses that belong to another request, as text. */
  readonly foreign: readonly string[];
}

/**
 * Puts a gateway under load, and kills it so many milliseconds after the first responses.
 * @param prefix of the request ids
 * @param before called then; the load goes on meanwhile
 */
export async function killUnderLoad(
  gateway: GatewayProcess,
  prefix: string,
  afterMs: number,
  before: () => Promise<void> = async () => undefined,
): Promise<Responses> {
  const { origin } = gateway;
  const ids: string[] = [];
  const foreign: string[] = [];
  let failed = 0;
  const first = Promise.withResolvers<void>();
  const load = startMarkedLoad(prefix, [{ name: 'g', origin, ...CLIENTS }], PAUSE_MS, (request) => {
    if (request.foreign !== undefined) foreign.push(`${request.id}: ${request.foreign}`);
    if (request.status === 200) {
      ids.push(request.id);
      if (ids.length >= FIRST_RESPONSES) first.resolve();
    } else failed += 1;
  });
  try {
    await first.promise;
    await delay(afterMs);
    await before();
  } finally {
    await gateway.kill();
    await load.end();
  }
  return { ids, failed, foreign };
}
