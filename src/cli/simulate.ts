import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import type { z } from 'zod';
import { loadSettings } from '../config/load.ts';
import { defaultSettings, demoPorts, simulatorSettings } from '../simulator/settings.ts';
import { type Simulator, startSimulator } from '../simulator/simulator.ts';
import { type Io, print, type Run, shutdownSignal } from './io.ts';
import { tableText } from './table.ts';

/** `simulate [--config FILE]`: runs the upstream simulator alone. */
export function registerSimulate(program: Command, run: Run): void {
  program
    .command('simulate')
    .description('run the upstream simulator alone')
    .option(
      '--config <file>',
      'the settings of the simulator (YAML); without it, the two deployments of the demo',
    )
    .action(run(simulate));
}

async function simulate(io: Io, { config }: { config?: string }): Promise<void> {
  const simulator = await startSimulator(
    config === undefined ? defaultSettings(demoPorts) : await settingsIn(config),
  );
  await print(io, tableText(addressRows(simulator)));
  await shutdownSignal();
  await simulator.close();
}

/** Reads the settings in a file, to whose folder its file names are relative. */
async function settingsIn(file: string): Promise<z.output<typeof simulatorSettings>> {
  const { settings } = await loadSettings(file, simulatorSettings);
  const { caFile } = settings;
  return caFile === undefined ? settings : { ...settings, caFile: resolve(dirname(file), caFile) };
}

/** Returns the addresses of the simulator: program, port, URL. */
export function addressRows({ deployments, sidePort }: Simulator): [string, string, string][] {
  return [
    ...Object.entries(deployments).map(([name, { origin }]): [string, string, string] => [
      'simulator',
      name,
      origin,
    ]),
    ['simulator', 'side port', `http://127.0.0.1:${sidePort}  (GET /counts, GET /ca.pem)`],
  ];
}
