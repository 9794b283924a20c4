import type { Command } from 'commander';
import { formatFault } from '../config/faults.ts';
import { gatewayProcess, shutdownSignal, urlOf } from './gateway-process.ts';
import { readSetup } from './setup.ts';
import { surroundings } from './surroundings.ts';

/** `serve --config FILE`: runs the gateway until SIGTERM or SIGINT; SIGHUP reads the configuration again. */
export function registerServe(program: Command): void {
  program
    .command('serve')
    .description('run the gateway; SIGHUP reloads, SIGTERM drains')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .action(({ config }: { config: string }) => serve(config));
}

async function serve(file: string): Promise<void> {
  const setup = await readSetup(file, surroundings());
  const { app, log } = await gatewayProcess(setup);
  for (const warning of setup.warnings) log.warn(formatFault(warning));
  const { listen, control } = await app.start();
  log.info({ listen: urlOf(listen), control: urlOf(control) }, 'the gateway is up');
  process.on('SIGHUP', () => void app.reload(() => readSetup(file, surroundings())));
  const signal = await shutdownSignal();
  log.info({ signal }, 'draining: no new requests, those under way are finished');
  await app.close();
  log.info('stopped');
}
