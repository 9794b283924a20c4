import { writeFile } from 'node:fs/promises';
import type { GatewayProcess } from './gateway-process.ts';
import { repository } from './repository.ts';
import { until } from './until.ts';

const LIMIT_MS = 240_000;

/** The command for `startGatewayProcess` that lets `measuredReload` see the turns of the event loop. */
export const MONITORED = [
  'node',
  '--expose-gc',
  '--import',
  `${repository}/test/support/loop-monitor.ts`,
] as const;

/** The longest turn of the event loop in milliseconds: of the processor and of the clock. */
export interface LongestTurn {
  readonly cpuMs: number;
  readonly wallMs: number;
}

/**
 * Reloads by SIGHUP; resolves when the configuration, in YAML, is in force, to the longest turn since the last one that
 * was told: with all that the reload before left to do.
 */
export async function measuredReload(gateway: GatewayProcess, config: string): Promise<LongestTurn> {
  await writeFile(gateway.configFile, config);
  const seen = gateway.logged.length;
  process.kill(gateway.pid, 'SIGHUP');
  await until(
    () => gateway.logged.slice(seen).some(({ msg }) => /^configuration reloaded/.test(`${msg}`)),
    LIMIT_MS,
  );
  return longestTurn(gateway);
}

/** The longest turn since the start, or since it was told last. */
export async function longestTurn(gateway: GatewayProcess): Promise<LongestTurn> {
  const seen = gateway.logged.length;
  process.kill(gateway.pid, 'SIGUSR2');
  const told = () => gateway.logged.slice(seen).find(({ longestTurn }) => longestTurn !== undefined);
  await until(() => told() !== undefined, LIMIT_MS);
  return told()?.['longestTurn'] as LongestTurn;
}
