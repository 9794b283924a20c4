import { join } from 'node:path';
import type { Command } from 'commander';
import { collectAll } from '../base/buffer-gc.ts';
import type { Log } from '../base/log.ts';
import { formatIssue } from '../config/issues.ts';
import { SetupSource } from '../setup/setup.ts';
import { type GatewayProcess, gatewayProcess, urlOf } from './gateway-process.ts';
import { type Io, processContext, type Run, shutdownSignal } from './io.ts';

/** Time for what a stopped gateway has left open, such as a file on a mount that hangs, in milliseconds. */
const END_MS = 5_000;

interface ServeOptions {
  readonly config: string;
  readonly watch: boolean;
}

/**
 * `serve --config FILE`: runs the gateway until SIGTERM or SIGINT; SIGHUP reloads the configuration, and SIGUSR2
 * replaces the workers by ones of the program's present version.
 */
export function registerServe(program: Command, run: Run): void {
  program
    .command('serve')
    .description('run the gateway; SIGHUP reloads, SIGTERM drains')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--watch', 'reload when the configuration file changes', false)
    .action(run(serve));
}

async function serve(io: Io, { config, watch }: ServeOptions): Promise<void> {
  const created = Promise.withResolvers<GatewayProcess>();
  // Registered first, because without a listener the signal ends the process.
  process.on('SIGHUP', () => void created.promise.then(({ app }) => app.reload()));
  process.on('SIGUSR2', () => void created.promise.then(replaceWorkers));
  const source = new SetupSource(config, processContext(io));
  const setup = await source.readAtStart();
  // A start that failed ends the process, whatever it left open.
  const failed = (error: unknown): never => {
    endWithin(io, setup.config.drain.timeout, 'SIGKILL');
    throw error;
  };
  const gateway = await gatewayProcess(io, setup, { source, watchFile: watch }).catch(failed);
  created.resolve(gateway);
  const { app, log, stopTracing } = gateway;
  for (const warning of setup.warnings) log.warn(formatIssue(warning));
  // Registered before the start: a signal during it would end the process without closing the audit log.
  const stopping = shutdownSignal();
  collectAll();
  const { listen, control } = await app.start().catch(failed);
  const urls = listen.map((address, index) => urlOf(address, setup.listenTls[index] ? 'https' : 'http'));
  const { audit } = setup;
  const opened = {
    listen: urls.length === 1 ? urls[0] : urls,
    control: urlOf(control),
    audit: audit && join(audit.directory, audit.replica),
  };
  log.info(opened, 'the gateway is up');

  const signal = await Promise.race([stopping, app.drainRequested.then(() => undefined)]);
  log.info({ signal }, 'draining; another signal skips drain.delay');
  // If an operator asked for it, the first signal is still to come.
  void (signal === undefined ? stopping : shutdownSignal()).then(() => app.close());
  // Ctrl-C skips the delay, because no load balancer needs to notice.
  await (signal === 'SIGINT' ? app.close() : app.drain());
  await stopTracing();
  log.info('stopped');
  endWithin(io, END_MS, 'SIGTERM', log);
}

/** Resources that end with the process, or by themselves. A thread that a file keeps is none, and may have no name at all. */
const ENDS = /^(?:TCP|TLS|UDP|PipeServer|Process|Timeout|GetAddrInfo)/;

/**
 * Ends this process after a time, in milliseconds, if something that was left open keeps it: with its status, or with the
 * signal if a thread does not end. Service managers take SIGTERM for the end of a stop, and SIGKILL for a failure.
 */
export function endWithin(
  { exit }: Pick<Io, 'exit'>,
  ms: number,
  signal: 'SIGTERM' | 'SIGKILL',
  log?: Pick<Log, 'warn'>,
): void {
  // The command runs within another program, as in a test.
  if (exit === undefined) return;
  setTimeout(() => {
    const open = process.getActiveResourcesInfo();
    // It waits for every thread, also for one that a disk or a pipe keeps for good.
    if (open.some((name) => ENDS.test(name)) && !open.some((name) => name.startsWith('FSReq')))
      process.exit();
    log?.warn('a disk or a pipe does not respond; the process ends without waiting for it');
    // With a listener, the signal would not end the process.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }, ms).unref();
}

function replaceWorkers({ upgrade, log }: GatewayProcess): void {
  if (upgrade !== undefined) void upgrade();
  else
    log.warn('SIGUSR2 ignored: without workers there is nothing to replace; set workers: auto, or restart');
}
