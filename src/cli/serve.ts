import type { Command } from 'commander';
import { reportError } from '../base/report-error.ts';
import { formatIssue } from '../config/issues.ts';
import { CredentialVersions } from '../credentials/versions.ts';
import { type CredentialWatch, watchCredentials } from '../credentials/watch.ts';
import { readListenTls } from '../setup/listen-tls.ts';
import { type AppSetup, readSetup, readSetupInBackground } from '../setup/setup.ts';
import { gatewayProcess, urlOf } from './gateway-process.ts';
import { processContext } from './process-context.ts';
import { shutdownSignal } from './shutdown-signal.ts';

/** `serve --config FILE`: runs the gateway until SIGTERM or SIGINT; SIGHUP reloads the configuration. */
export function registerServe(program: Command): void {
  program
    .command('serve')
    .description('run the gateway; SIGHUP reloads, SIGTERM drains')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .action(({ config }: { config: string }) => serve(config));
}

async function serve(file: string): Promise<void> {
  const started = Promise.withResolvers<void>();
  // Reloads run one after the other: concurrent ones would replace the same parts, and leave one unclosed.
  let reloading: Promise<unknown> = started.promise;
  const inTurn = (reload: () => Promise<void> | undefined): void => {
    // An unhandled rejection in the chain would block every later reload.
    reloading = reloading.then(reload).catch(reportError);
  };
  // Registered first, because without a listener the signal ends the process.
  process.on('SIGHUP', () => inTurn(() => reloadFile()));
  const versions = new CredentialVersions();
  const setup = await readSetup(file, processContext(), versions);
  const { app, log, stopTracing } = await gatewayProcess(setup);
  for (const warning of setup.warnings) log.warn(formatIssue(warning));
  // Registered before the start: a signal during it would end the process without closing the audit log.
  const stopping = shutdownSignal();
  const { listen, control } = await app.start();
  const scheme = setup.listenTls === undefined ? 'http' : 'https';
  log.info({ listen: urlOf(listen, scheme), control: urlOf(control) }, 'the gateway is up');

  const watchOver = (watched: AppSetup): CredentialWatch => {
    const own = watchCredentials({
      credentials: watched.config.credentials,
      sealed: watched.config.sealed,
      context: processContext(),
      versions,
      known: watched.credentials,
      onChange: ({ byName }) => {
        log.info('credentials changed: reloading');
        const load = async (): Promise<AppSetup> => {
          // The certificate may have been replaced since this setup was read.
          const { tls } = await readListenTls(watched.config.listen.tls, processContext().uid);
          return { ...watched, credentials: byName, listenTls: tls };
        };
        // If the file was reloaded in the meantime, this setup is outdated, and the new watch reports the
        // change.
        inTurn(() => (watch === own ? app.reload(load) : undefined));
      },
      onError: ({ message }) => {
        log.error({ reason: message }, 'changed credentials cannot be used; keeping the current ones');
      },
    });
    return own;
  };
  let watch = watchOver(setup);
  let isStopping = false;
  const reloadFile = (): Promise<void> =>
    app.reload(async () => {
      const next = await readSetupInBackground(file, processContext(), versions);
      await watch.close();
      // A watch that starts after the shutdown would keep the process alive.
      if (!isStopping) watch = watchOver(next);
      return next;
    });
  started.resolve();

  const signal = await stopping;
  isStopping = true;
  log.info({ signal }, 'draining; another signal skips drain.delay');
  void shutdownSignal().then(() => app.close());
  await watch.close();
  // Ctrl-C skips the delay, because no load balancer needs to notice.
  await (signal === 'SIGINT' ? app.close() : app.drain());
  await stopTracing();
  log.info('stopped');
}
