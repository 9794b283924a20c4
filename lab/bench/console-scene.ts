import { setTimeout as delay } from 'node:timers/promises';
import type { AuditOptions } from '../../src/audit/audit.ts';
import type { ConsolePace } from '../../src/control/console.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../src/simulator/simulator.ts';
import { startGateway, type TestDeployment } from '../../test/support/gateway.ts';

const PATH = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';
const QUERY = '?ids=%27DEMO-2026-0001%27&site_name=demo';

export interface SceneOptions {
  /** Number of deployments; their upstream is one simulator. */
  readonly deployments: number;
  readonly consoleFolder: string;
  readonly consolePace?: ConsolePace;
  readonly audit?: AuditOptions;
  /** Sections of the configuration. */
  readonly top?: Record<string, unknown>;
}

/** Names of the first deployments; the others have a number. */
const NAMES = ['submissions', 'abstracts', 'reviews', 'archive', 'licences', 'metadata'];

/** A gateway with many deployments before the simulator, for programs that look at the console. */
export async function startScene({ deployments, ...options }: SceneOptions) {
  const simulator = await startSimulator(defaultSettings());
  const { consoleFolder, consolePace, audit, top } = options;
  const names = Array.from({ length: deployments }, (_, at) => NAMES[at] ?? `deployment-${at + 1}`);
  const { origin } = simulator.deployments.submissions;
  const gateway = await startGateway(
    Object.fromEntries(names.map((name) => [name, deploymentAt(name, origin, simulator.ca)])),
    top,
    {
      consoleFolder,
      ...(consolePace !== undefined && { consolePace }),
      ...(audit !== undefined && { audit }),
    },
  );
  const urlOf = (name: string, path = PATH): string => `${gateway.origin}/${name}${path}${QUERY}`;
  return {
    gateway,
    simulator,
    names,
    urlOf,
    async close() {
      await gateway.close();
      await simulator.close();
    },
  };
}

function deploymentAt(name: string, origin: string, ca: string): TestDeployment {
  // The address of one of them accepts no connection.
  const isGone = name === 'archive';
  const settings = {
    match: { pathPrefix: `/${name}/` },
    rewrite: { stripPrefix: `/${name}` },
    operations: { authors: { method: 'GET', path: PATH } },
  };
  return { origin: isGone ? 'https://127.0.0.1:9' : origin, ca, settings };
}

export interface Traffic {
  stop(): Promise<void>;
}

/** Calls `send` again and again, with a pause of random length around `pauseMs`, until it is stopped. */
export function startTraffic(send: () => Promise<unknown>, pauseMs: number): Traffic {
  const stopping = new AbortController();
  const ended = (async () => {
    while (!stopping.signal.aborted) {
      await send();
      await delay(pauseMs * (0.3 + 1.4 * Math.random()), undefined, { signal: stopping.signal }).catch(
        () => {},
      );
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await ended;
    },
  };
}

/** Sends a GET and reads all of its response. */
export async function load(url: string, headers: Record<string, string> = {}): Promise<void> {
  const response = await fetch(url, { headers });
  await response.arrayBuffer();
}
