import type { AppSetup } from '../setup/setup.ts';

/** The name of a worker among those that share the audit folder. */
export function replicaOf(replica: string, number: number): string {
  return `${replica}@${number}`;
}

/**
 * Returns the setup of one worker: its audit log has a folder of its own, and connections and memory of the whole
 * gateway are divided among the workers.
 */
export function setupOfWorker(setup: AppSetup, number: number, workers: number): AppSetup {
  const { config, audit } = setup;
  const part = (all: number): number => Math.max(1, Math.ceil(all / workers));
  const { limits } = config.listen;
  const divided = {
    ...limits,
    connections: part(limits.connections),
    bodyMemory: part(limits.bodyMemory),
  };
  const deployments = Object.fromEntries(
    Object.entries(config.deployments).map(([name, deployment]) => [
      name,
      { ...deployment, connections: part(deployment.connections) },
    ]),
  );
  return {
    ...setup,
    config: { ...config, listen: { ...config.listen, limits: divided }, deployments },
    audit: audit && { ...audit, replica: replicaOf(audit.replica, number) },
  };
}
