import { setTimeout as delay } from 'node:timers/promises';
import type { BehaviourChange, DeploymentSettings } from '../../src/simulator/settings.ts';
import type { TestDeployment } from '../support/gateway.ts';
import { type RelayMode, startSwitchedRelay } from '../support/relay.ts';
import { startConnections, type UpstreamConnection } from '../support/scripted-upstream.ts';
import { startSimulator } from '../support/simulator.ts';

/** How an upstream fails, and the requests that it gets then. */
export interface UpstreamFault {
  /** Settings of its deployment; the circuit stays closed unless they say otherwise. */
  readonly settings?: Record<string, unknown>;
  readonly mode?: RelayMode;
  readonly behaviour?: BehaviourChange;
  /** Target of the requests; the name of the deployment comes before it. */
  readonly target: string;
  /** Requests per second, while no more than `underWay` have no response. */
  readonly perSecond: number;
  readonly underWay: number;
  /** The outcomes that clients may see: a status, or an error when the body is broken off. */
  readonly outcomes: RegExp;
}

/** The usual load: little, so that it takes little CPU time of the gateway, with the fault or without. */
export const LIGHT = { target: '/echo', perSecond: 20, underWay: 60 };
const SHORT = '500ms';
const ENDLESS = `/bytes/${2 ** 40}`;
/** The second is the whole time of a request on a machine that is too slow for the head within it. */
const BROKEN_OFF = /terminated|504/;
/** The second is of a connection that took too long on a slow machine. */
const BROKEN = /502|504/;
const when = 'authenticated';

/** By the name of the deployment. */
export const UPSTREAM_FAULTS = {
  refusing: { ...LIGHT, mode: 'refusing', outcomes: /502/ },
  'no-tls': {
    ...LIGHT,
    mode: 'silent',
    settings: { timeouts: { connect: SHORT, response: SHORT } },
    outcomes: /504/,
  },
  silent: {
    ...LIGHT,
    behaviour: { faults: [{ kind: 'hang', when }] },
    settings: { timeouts: { response: SHORT } },
    outcomes: /504/,
  },
  resetting: { ...LIGHT, behaviour: { faults: [{ kind: 'reset-before-head', when }] }, outcomes: BROKEN },
  'one-byte-a-second': {
    ...LIGHT,
    behaviour: { faults: [{ kind: 'slow-body', bytes: 1, everyMs: 1000, when }] },
    settings: { timeouts: { total: '1s' } },
    outcomes: BROKEN_OFF,
  },
  'endless-body': {
    ...LIGHT,
    target: ENDLESS,
    behaviour: { faults: [{ kind: 'slow-body', bytes: 4096, everyMs: 20, when }] },
    settings: { timeouts: { total: '1s' } },
    outcomes: BROKEN_OFF,
  },
  'endless-401': { ...LIGHT, outcomes: /200/ },
  garbage: { ...LIGHT, behaviour: { faults: [{ kind: 'garbage', when }] }, outcomes: BROKEN },
  paused: {
    ...LIGHT,
    behaviour: { faults: [{ kind: 'throttle', when }] },
    settings: { outcomes: [{ name: 'throttled', status: 400, pause: '10m' }] },
    outcomes: /400|503/,
  },
  'circuit-open': {
    ...LIGHT,
    mode: 'refusing',
    settings: { circuit: { minimum: 5, open: '10m' } },
    outcomes: /502|503/,
  },
  overloaded: {
    ...LIGHT,
    behaviour: { faults: [{ kind: 'delay', ms: 50, when }] },
    settings: { connections: 2 },
    perSecond: 200,
    underWay: 100,
    outcomes: /200|503/,
  },
} as const satisfies Record<string, UpstreamFault>;

/** `healthy` has the same load, and gives responses. */
export const HEALTHY = 'healthy';

export interface FaultyUpstreams extends AsyncDisposable {
  /** PEM of the authority of all but plain HTTP. */
  readonly ca: string;
  /** An upstream for each fault, by its name, and HEALTHY. */
  readonly origins: Readonly<Record<string, string>>;
  /** Before that, each of them is healthy, so that it accepts its credential. */
  beginFaults(): Promise<void>;
}

/** Starts an upstream for each fault. */
export async function startFaultyUpstreams(): Promise<FaultyUpstreams> {
  const faults = Object.entries<UpstreamFault>(UPSTREAM_FAULTS);
  const healthy: DeploymentSettings = { kind: 'submissions', family: 'manuscripts', testPaths: true };
  const simulator = await startSimulator({
    deployments: Object.fromEntries(
      [HEALTHY, ...Object.keys(UPSTREAM_FAULTS)].map((name) => [name, healthy]),
    ),
  });
  const relays = new Map(
    await Promise.all(
      faults.map(
        async ([name]) => [name, await startSwitchedRelay(simulator.deployments[name]?.port ?? 0)] as const,
      ),
    ),
  );
  let isFaulty = false;
  const scripted = await startConnections(oneTimeNonces(() => isFaulty));
  const origins = Object.fromEntries([
    [HEALTHY, simulator.deployments[HEALTHY]?.origin ?? ''],
    ...Array.from(relays, ([name, { port }]) => [name, `https://127.0.0.1:${port}`]),
    ['endless-401', scripted.origin],
  ]);
  return {
    ca: simulator.ca,
    origins,
    async beginFaults() {
      isFaulty = true;
      for (const [name, { mode, behaviour }] of faults) {
        if (behaviour !== undefined) simulator.set(name, behaviour);
        if (mode !== undefined) await relays.get(name)?.set(mode);
      }
    },
    async [Symbol.asyncDispose]() {
      for (const relay of relays.values()) await relay.close();
      await scripted.close();
      await simulator.close();
    },
  };
}

/** The deployments of a gateway before these upstreams; their names begin the paths of their requests. */
export function faultyDeployments({
  ca,
  origins,
}: Pick<FaultyUpstreams, 'ca' | 'origins'>): Record<string, TestDeployment> {
  const faults: Readonly<Record<string, UpstreamFault>> = UPSTREAM_FAULTS;
  return Object.fromEntries(
    Object.entries(origins).map(([name, origin]) => [
      name,
      {
        origin,
        ...(origin.startsWith('https:') && { ca }),
        settings: {
          match: { pathPrefix: `/${name}/` },
          rewrite: { stripPrefix: `/${name}` },
          circuit: { minimum: 1_000_000 },
          health: { interval: 'off' },
          digest: { noncePolicy: 'shared' },
          ...(origin.startsWith('http:') && { tls: { allowPlaintext: true } }),
          ...faults[name]?.settings,
        },
      },
    ]),
  );
}

/** Serves each nonce once. The next use gets a 401 (stale), whose body does not end when the fault has begun. */
function oneTimeNonces(isFaulty: () => boolean): (connection: UpstreamConnection) => Promise<void> {
  const used = new Set<string>();
  let issued = 0;
  return async (connection) => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      const nonce = /nonce="(\w+)"/.exec(head)?.[1];
      if (nonce !== undefined && !(isFaulty() && used.has(nonce))) {
        used.add(nonce);
        await connection.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
        continue;
      }
      issued += 1;
      const length = nonce === undefined ? 0 : 2 ** 40;
      await connection.write(
        `HTTP/1.1 401 Unauthorized\r\nContent-Length: ${length}\r\n` +
          `WWW-Authenticate: Digest realm="x", nonce="n${issued}", qop="auth", stale=true\r\n\r\n`,
      );
      while (length > 0 && !connection.isClosed) {
        await connection.write('x'.repeat(1024));
        await delay(100);
      }
    }
  };
}
