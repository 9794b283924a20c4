import { join } from 'node:path';
import type { Command } from 'commander';
import { collectAll } from '../base/buffer-gc.ts';
import { ignoreSystemError } from '../base/expected-errors.ts';
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
    endWithin(io, setup.config.drain.timeout);
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
  endWithin(io, END_MS, log);
}

/**
 * Ends this process with its status after a time, in milliseconds, if something that was left open keeps it, such as a
 * file on a mount that hangs.
 */
export function endWithin({ exit }: Pick<Io, 'exit'>, ms: number, log?: Pick<Log, 'warn'>): void {
  // The command runs within another program, as in a test.
  if (exit === undefined) return;
  setTimeout(() => {
    const open = [...new Set(process.getActiveResourcesInfo())];
    log?.warn({ open }, 'the process ends without waiting for what it has left open');
    // `exit` waits for every thread, also for one that a disk keeps for good; and the first process of a container cannot
    // end itself by a signal.
    const { execPath, exitCode = 0 } = process;
    try {
      process.execve?.(execPath, [execPath, '--eval', `process.exit(${exitCode})`], {});
    } catch (error) {
      // An upgrade may have removed that Node.js.
      ignoreSystemError(error);
    }
    process.kill(process.pid, 'SIGKILL');
  }, ms).unref();
}

function replaceWorkers({ upgrade, log }: GatewayProcess): void {
  if (upgrade !== undefined) void upgrade();
  else
    log.warn('SIGUSR2 ignored: without workers there is nothing to replace; set workers: auto, or restart');
}
