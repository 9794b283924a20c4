import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import type { TopLevel } from './gateway.ts';
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts';
import { startSimulator } from './simulator.ts';

/** A gateway with worker processes in front of the simulator. */
export interface FleetScene extends AsyncDisposable {
  readonly simulator: Simulator<'submissions' | 'abstracts'>;
  readonly gateway: GatewayProcess;
  /** Process ids of the workers that are there now. */
  workers(): Promise<number[]>;
}

export interface FleetOptions {
  readonly workers?: number;
  readonly behaviour?: BehaviourChange;
  readonly top?: TopLevel;
  /** Settings of the deployment. */
  readonly settings?: Record<string, unknown>;
  /** Settings of a second deployment, in front of the simulator's other upstream; left out: there is none. */
  readonly abstracts?: Record<string, unknown>;
  readonly args?: readonly string[];
}

export async function startFleet(options: FleetOptions = {}): Promise<FleetScene> {
  const { workers = 2, behaviour = {}, top = {}, settings = {}, abstracts, args = [] } = options;
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true, ...behaviour };
  const simulator = await startSimulator({ deployments: { ...deployments, submissions } });
  const { ca } = simulator;
  const { origin } = simulator.deployments.submissions;
  const other = abstracts && { origin: simulator.deployments.abstracts.origin, ca, settings: abstracts };
  const drain = { delay: '0s', timeout: '20s' };
  const gateway = await startGatewayProcess(
    { submissions: { origin, ca, settings }, ...(other && { abstracts: other }) },
    { workers, drain, ...top },
    { args },
  ).catch(async (error) => {
    await simulator.close();
    throw error;
  });
  return {
    simulator,
    gateway,
    workers: () => childrenOf(gateway.pid),
    async [Symbol.asyncDispose]() {
      await gateway.close();
      await simulator.close();
    },
  };
}

/** Process ids of a process's children. Linux only. */
export async function childrenOf(pid: number): Promise<number[]> {
  const folder = `/proc/${pid}/task`;
  const threads = await readdir(folder);
  const lists = await Promise.all(
    // A thread may have ended in the meantime.
    threads.map((thread) => readFile(join(folder, thread, 'children'), 'utf8').catch(() => '')),
  );
  return lists.join(' ').split(/\s+/).filter(Boolean).map(Number);
}
