import type { Command } from 'commander';
import { loadSettings } from '../config/load.ts';
import { defaultSettings, demoPorts, simulatorSettings } from '../simulator/settings.ts';
import { type Simulator, startSimulator } from '../simulator/simulator.ts';
import { shutdownSignal } from './shutdown-signal.ts';

/** `simulate [--config FILE]`: runs the upstream simulator alone. */
export function registerSimulate(program: Command): void {
  program
    .command('simulate')
    .description('run the upstream simulator alone')
    .option(
      '--config <file>',
      'the settings of the simulator (YAML); without it, the two deployments of the demo',
    )
    .action(async ({ config }: { config?: string }) => {
      const simulator = await startSimulator(
        config === undefined ? defaultSettings(demoPorts) : await loadSettings(config, simulatorSettings),
      );
      process.stdout.write(`${describe(simulator).join('\n')}\n`);
      await shutdownSignal();
      await simulator.close();
    });
}

/** Formats the addresses of the simulator, one on each line. */
export function describe({ deployments, sidePort }: Simulator): string[] {
  return [
    ...Object.entries(deployments).map(([name, { origin }]) => `simulator  ${name.padEnd(12)} ${origin}`),
    `simulator  ${'side port'.padEnd(12)} http://127.0.0.1:${sidePort}  (GET /counts, GET /ca.pem)`,
  ];
}
