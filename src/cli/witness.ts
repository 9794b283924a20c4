import type { Command } from 'commander';
import { createLog } from '../base/log.ts';
import { describeError } from '../base/report-error.ts';
import { startWitness } from '../witness/start.ts';
import { urlOf } from './gateway-process.ts';
import { type Io, processContext, type Run, shutdownSignal } from './io.ts';

/** `witness --config FILE`: cosigns the signed heads of audit logs until SIGTERM or SIGINT. */
export function registerWitness(program: Command, run: Run): void {
  program
    .command('witness')
    .description('run a witness of the signed heads of audit logs, on a machine that no gateway is on')
    .requiredOption('--config <file>', 'the settings of the witness (YAML)')
    .action(run(serveWitness));
}

async function serveWitness(io: Io, { config }: { readonly config: string }): Promise<void> {
  const log = createLog(io.stderr);
  // Nobody knows what such an error has left undone. All that was cosigned is on disk.
  process.on('uncaughtException', (error) => {
    log.error({ cause: describeError(error) }, 'internal error; the process ends');
    io.exit?.(1);
  });
  // Registered before the start: a signal during it would end the process with the folder locked.
  const stopping = shutdownSignal();
  // Without a listener, the signal that reloads a gateway would end the process.
  process.on('SIGHUP', () => log.warn('SIGHUP ignored: changed settings need a restart'));
  const witness = await startWitness(config, processContext(io), log);
  const url = urlOf(witness.address, witness.isTls ? 'https' : 'http');
  const { metricsAddress, publicKey } = witness;
  const metrics = metricsAddress === undefined ? {} : { metrics: `${urlOf(metricsAddress, 'http')}/metrics` };
  log.info({ url, publicKey, ...metrics }, 'the witness is up');
  await stopping;
  await witness.close();
  log.info('stopped');
}
