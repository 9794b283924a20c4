import type { Audit } from '../audit/audit.ts';
import { auditKeys } from '../audit/keys.ts';
import { identifierLists } from '../audit/reader/usage.ts';
import { AuditSinks } from '../audit/shipping/audit-sinks.ts';
import { monotonicClock } from '../base/clock.ts';
import type { FileWatch } from '../base/file-watch.ts';
import { type OpenAddress, removeStaleSocket } from '../base/open-port.ts';
import { Throttle } from '../base/throttle.ts';
import { formatPath } from '../config/issues.ts';
import { listenerPath } from '../config/listen.ts';
import { fourEyesOf } from '../config/operators.ts';
import type { ReloadResult } from '../control/actions.ts';
import type { AuditLogAccess } from '../control/audit-api.ts';
import { CONSOLE_PACE, type ConsolePace } from '../control/console.ts';
import { ControlPlane } from '../control/control.ts';
import type { OidcOptions } from '../control/oidc.ts';
import type { Offer, OfferedDeployment } from '../control/openapi.ts';
import { type GatewayState, mergeStates } from '../control/state.ts';
import type { TokenHashes } from '../control/token-guard.ts';
import type { ListenTls } from '../gateway/listener.ts';
import { compileRules } from '../policy/rules.ts';
import { watchListenTls } from '../setup/listen-tls.ts';
import type { AppSetup, SetupSource } from '../setup/setup.ts';
import { Actions } from './actions.ts';
import type { ProcessParts } from './compose.ts';
import { consoleSource, queriesOf } from './console.ts';
import { openIdProvider } from './deployments.ts';
import { type ReloadCause, Reloads, type ServiceManager } from './reloads.ts';
import type { Workers } from './worker.ts';

/** The parts of this process, whose audit log the app closes, and what is around them. */
export interface AppDeps
  extends Pick<ProcessParts, 'log' | 'build' | 'audit' | 'metrics' | 'merged' | 'flightFiles'> {
  readonly workers: Workers;
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid: number | undefined;
  /** Folder of the built console. */
  readonly consoleFolder: string;
  readonly consolePace?: ConsolePace;
  /** Undefined: the setup is not from a file, and is reloaded by `reload` with another one only. */
  readonly source?: SetupSource;
  /** True: the file is read again when it changes. */
  readonly watchFile?: boolean;
  /** Undefined: there is none that wants to know the gateway's state. */
  readonly serviceManager?: ServiceManager | undefined;
}

/** The whole gateway: its workers, and beside them the control plane and the reloads. */
export class App {
  readonly #deps: AppDeps;
  /** The setup at the start; parts of it cannot change while the gateway runs. */
  readonly #setup: AppSetup;
  readonly #control: ControlPlane;
  readonly #reloads: Reloads;
  /** Undefined: no sinks are configured. */
  readonly #auditSinks: AuditSinks | undefined;
  #listening: readonly OpenAddress[];
  /** The last offer, and what it was made from. */
  #offer: { setup: AppSetup; listening: readonly OpenAddress[]; offer: Offer } | undefined;
  #tlsWatches: readonly FileWatch[] = [];
  #closing: Promise<void> | undefined;
  readonly #drainRequested = Promise.withResolvers<void>();

  constructor(setup: AppSetup, deps: AppDeps) {
    const { log, metrics, audit, flightFiles, workers, source, watchFile = false, serviceManager } = deps;
    this.#deps = deps;
    this.#setup = setup;
    this.#listening = setup.config.listen;
    const reloading = { source, watchFile, log, metrics, audit, flightFiles, serviceManager, workers };
    this.#reloads = new Reloads(setup, reloading);
    this.#auditSinks = openSinks(setup, { log, audit });
    this.#control = this.#openControl();
  }

  /**
   * Opens both planes; resolves to their addresses, those of the data plane in the order of the configuration.
   * @throws Error if a port cannot be opened; nothing stays open then
   */
  async start(): Promise<{ listen: readonly OpenAddress[]; control: OpenAddress }> {
    const { workers, log, build, uid, audit } = this.#deps;
    const { config, listenTls } = this.#setup;
    const addresses = await this.#openPlanes().catch(async (error) => {
      // A connection to Redis that stays open would keep the process from ending.
      workers.hurry();
      await Promise.all([workers.drain(), this.#reloads.close()]);
      // A record of it also keeps the log of a process that is started again and again one that readers believe.
      await audit.close('start-failed');
      await this.#auditSinks?.close();
      throw error;
    });
    this.#listening = addresses.listen;
    const { version, node } = build;
    audit.admin('start', { version, node, deployments: Object.keys(config.deployments) });
    const renew = (listener: number, tls: ListenTls): void => this.#reloads.renewTls({ listener, tls });
    this.#tlsWatches = listenTls.map((tls, index) =>
      watchListenTls(config.listen, index, tls, { log, uid, renew }),
    );
    this.#reloads.ready();
    return addresses;
  }

  /**
   * Activates the configuration of the file, or the one that `load` resolves to. The current one stays if it
   * cannot be read or built. Never rejects.
   */
  reload(load?: () => Promise<AppSetup>, cause: ReloadCause = { by: 'signal' }): Promise<ReloadResult> {
    this.#deps.workers.reopenAccessLog();
    return this.#reloads.reload(load, cause);
  }

  /**
   * Shuts down as a load balancer requires: reports not ready, serves for `drain.delay`, then accepts no
   * more connections, lets the open ones end, and closes everything. `close` skips the rest of the delay.
   */
  drain(): Promise<void> {
    this.#closing ??= this.#drain();
    return this.#closing;
  }

  /** Resolves when an operator asks for the shutdown over the control plane; the owner of the app then drains it. */
  get drainRequested(): Promise<void> {
    return this.#drainRequested.promise;
  }

  /** Refuses new requests, finishes the current ones and closes everything. May be called more than once. */
  close(): Promise<void> {
    this.#deps.workers.hurry();
    return this.drain();
  }

  async #drain(): Promise<void> {
    const { workers, serviceManager, audit } = this.#deps;
    serviceManager?.stopping();
    this.#reloads.refuse();
    await workers.drain();
    await Promise.all([...this.#tlsWatches.map((watch) => watch.close()), this.#reloads.close()]);
    await this.#control.close();
    await audit.close('stop');
    // The sinks get the last records, too.
    await this.#auditSinks?.close();
  }

  async #openPlanes() {
    const { workers } = this.#deps;
    const { listen: dataPlane, control } = this.#setup.config;
    for (const [index, { address }] of dataPlane.entries()) {
      await removeStaleSocket(address, formatPath(listenerPath(dataPlane, index)));
    }
    await removeStaleSocket(control.address, 'control');
    const listen = await workers.start();
    await this.#reloads.start();
    return {
      listen,
      control: await this.#control.listen(control),
    };
  }

  async #state(): Promise<GatewayState> {
    const { workers } = this.#deps;
    const sinks = this.#auditSinks?.states ?? [];
    const { states, former, primary } = await workers.states();
    const state = mergeStates(states, former);
    return { ...state, workers: primary, configuration: this.#reloads.state, sinks };
  }

  #createActions(): Actions {
    const { workers, audit, log, source } = this.#deps;
    return new Actions({
      workers,
      audit,
      log,
      reloads: this.#reloads,
      source,
      state: () => this.#state(),
      reload: (sender, files) =>
        this.reload(source && (() => source.readAgain(files)), { by: 'api', ...sender }),
      isDraining: () => this.#closing !== undefined,
      drain: () => this.#drainRequested.resolve(),
    });
  }

  async #observe(names?: readonly string[]): Promise<void> {
    const { workers, metrics } = this.#deps;
    await workers.observe(names);
    this.#auditSinks?.observe(metrics);
  }

  #openControl(): ControlPlane {
    const { log, metrics, build, workers, merged, audit } = this.#deps;
    const { consoleFolder, consolePace = CONSOLE_PACE } = this.#deps;
    const { traceUrl, actions: offered, session, fourEyes } = this.#setup.config.control;
    const actions = this.#createActions();
    const failures = new Throttle(monotonicClock, MAX_CODES);
    const reloads = this.#reloads;
    return new ControlPlane({
      tokens: tokensOf(this.#setup),
      oidc: oidcOf(this.#setup),
      fourEyes: fourEyesOf(fourEyes),
      session,
      record: (event, details) => audit.admin(event, details),
      onFailure: (code, reason) => {
        if (failures.admit(code) !== undefined) log.warn({ code, reason }, 'sign-in failed');
      },
      actions: offered ? actions : undefined,
      queries: queriesOf({ workers, reloads }),
      clock: monotonicClock,
      metrics,
      scrape: async (format) => {
        await this.#observe();
        return merged.text(format);
      },
      live: () => workers.live,
      reload: (address) => this.reload(undefined, { by: 'api', address }),
      commands: actions,
      console: consoleSource({
        values: async (names) => {
          await this.#observe(names);
          return merged.values(names);
        },
        workers,
        build,
        reloads,
        state: () => this.#state(),
      }),
      audit: {
        log: auditLogAccess(this.#setup, audit, () => reloads.active),
        traceUrl,
      },
      consoleFolder,
      pace: consolePace,
      onError: (error) => log.error({ cause: String(error) }, 'control plane request failed'),
      offer: () => this.#currentOffer(),
    });
  }

  /** The same object until the configuration or the addresses change: compiling all rules takes long. */
  #currentOffer(): Offer {
    const { active } = this.#reloads;
    if (this.#offer?.setup !== active || this.#offer.listening !== this.#listening) {
      const listen = this.#listening.map((address, index) => ({
        ...address,
        isSecure: this.#setup.listenTls[index] !== undefined,
      }));
      const offer = { version: this.#deps.build.version, listen, deployments: offerOf(active) };
      this.#offer = { setup: active, listening: this.#listening, offer };
    }
    return this.#offer.offer;
  }
}

/** Codes of failed sign-ins whose log lines are throttled, each by itself. */
const MAX_CODES = 32;

/** The hashes of the tokens; undefined: none is configured. */
function tokensOf({ config }: AppSetup): TokenHashes | undefined {
  const { tokenSha256: full, readTokenSha256: read } = config.control;
  return full === undefined && read === undefined ? undefined : { full, read };
}

/** The sign-in by name; undefined: it is not configured. */
function oidcOf(setup: AppSetup): OidcOptions | undefined {
  const { oidc } = setup.config.control;
  const provider = openIdProvider(setup);
  return oidc && provider && { ...oidc, ...provider };
}

/** The audit log of a setup for searches; undefined: there is none. */
function auditLogAccess(
  { audit: options }: AppSetup,
  audit: Audit,
  active: () => AppSetup,
): AuditLogAccess | undefined {
  if (options === undefined) return undefined;
  const keys = auditKeys(options.key);
  return {
    directory: options.directory,
    keys: [keys],
    keysDirectory: options.pseudonyms?.keysDirectory,
    recorded: (criterion) => audit.recordedCriterion(criterion),
    parameters: () => active().config.audit?.parameters ?? [],
    lists: () => identifierLists(active().config.deployments),
    record: (event, details) => audit.adminWritten(event, details),
  };
}

function offerOf({ config: { deployments } }: AppSetup): OfferedDeployment[] {
  return Object.entries(deployments).map(([name, deployment]) => {
    const { pathPrefix, host } = deployment.match;
    const rules = compileRules(name, deployment, deployments);
    return { rules, host: pathPrefix === undefined ? host : undefined };
  });
}

/** Starts sending the logs of this replica and its workers; undefined: there is nowhere to send them. */
function openSinks(
  { audit: options, auditSinks: sinks }: AppSetup,
  { log, audit }: Pick<AppDeps, 'log' | 'audit'>,
): AuditSinks | undefined {
  if (options === undefined || sinks.length === 0) return undefined;
  const { directory, replica, key } = options;
  const recordLoss = audit.recordLoss.bind(audit);
  return new AuditSinks({ directory, replica, key, sinks }, { log, recordLoss });
}
