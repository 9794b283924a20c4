import type { Audit } from '../audit/audit.ts';
import { messageOf } from '../base/error-code.ts';
import { FileWatch } from '../base/file-watch.ts';
import type { Log } from '../base/log.ts';
import { reportError } from '../base/report-error.ts';
import { ConfigError, formatIssue, formatPath, type LocatedIssue } from '../config/issues.ts';
import type { Reloaded, ReloadRefused, ReloadResult } from '../control/actions.ts';
import { configurationCheck } from '../control/readiness.ts';
import { type ConfigurationState, mergeStates } from '../control/state.ts';
import { withdrawnBetween } from '../credentials/credentials.ts';
import { watchCredentials, withKept } from '../credentials/reading.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { type AppSetup, OtherFilesError, type SetupSource } from '../setup/setup.ts';
import { passwordWarnings } from '../setup/warnings.ts';
import { type Pinned, pin } from './changes.ts';
import type { FlightFiles } from './flight-files.ts';
import { type Activation, NoWorkerError, type TlsRenewal, type Workers } from './worker.ts';
import { usedAt } from './worker-state.ts';

/** Receives the states of the gateway, as systemd does (sd_notify(3)). `status` is a line for people. */
export interface ServiceManager {
  /** Both planes listen, or a reload has ended. */
  ready(status: string): void;
  reloading(): void;
  stopping(): void;
}

/** The cause of a reload. `credentials`: their sources have changed. */
export interface ReloadCause {
  readonly by: 'signal' | 'watch' | 'credentials' | 'api';
  /** Address of the client; undefined unless it came over the control plane. */
  readonly address?: string;
  /** The person, if it was one who signed in. */
  readonly operator?: string;
  readonly operatorSubject?: string;
}

interface ReloadsDeps {
  /** Undefined: the configuration is not in a file. */
  readonly source: SetupSource | undefined;
  /** True: the file is read again when it, or one that it includes, changes. */
  readonly watchFile: boolean;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly audit: Audit;
  readonly flightFiles: Pick<FlightFiles, 'folder'>;
  readonly serviceManager: ServiceManager | undefined;
  readonly workers: Pick<Workers, 'activate' | 'renewTls' | 'states'>;
}

/** Number of issues in the readiness; the log has all. */
const SHOWN_ISSUES = 3;
/** Length of a reason in the readiness, in characters. */
const SHOWN_LENGTH = 1_000;

const NO_FILE = 'the configuration of this gateway is not in a file';
const CLOSED = 'the gateway is shutting down';
const OTHER_FILES = 'its files have changed since the action was described; start it again';

/**
 * Owns the active setup: reads and activates configurations, one after the other, and keeps the result of the last one.
 */
export class Reloads {
  readonly #deps: ReloadsDeps;
  #active: AppSetup;
  /** Time of its activation, in Unix milliseconds. */
  #activeSince = Date.now();
  readonly #started = Promise.withResolvers<void>();
  /** Concurrent reloads would replace the same parts, and leave one unclosed. */
  #last: Promise<unknown> = this.#started.promise;
  /** Why the last configuration was refused; undefined: it was not. */
  #refusal: { readonly cause: ReloadCause; readonly reason: string; readonly shown: string } | undefined;
  /** Issues of the credentials that cannot be read now. */
  #unreadable: readonly string[] = [];
  #needsRestart: readonly string[] = [];
  /** False: a part of the active configuration could not be applied. */
  #isApplied = true;
  #credentialWatch: FileWatch | undefined;
  #fileWatch: FileWatch | undefined;
  /** Undefined until the gateway is ready. */
  #serviceManager: ServiceManager | undefined;
  /** True: only credentials are reloaded. */
  #closed = false;

  constructor(setup: AppSetup, deps: ReloadsDeps) {
    this.#active = setup;
    this.#deps = deps;
  }

  get active(): AppSetup {
    return this.#active;
  }

  get activeSince(): number {
    return this.#activeSince;
  }

  /** Puts another certificate of a listener in use, which its files have from now on. */
  renewTls(renewal: TlsRenewal): void {
    const { listenTls } = this.#active;
    this.#active = { ...this.#active, listenTls: listenTls.with(renewal.listener, renewal.tls) };
    this.#deps.workers.renewTls(renewal);
  }

  /**
   * Begins the watches, and the reloads that were asked for before. Resolves when credentials that have changed since
   * they were read are in use: a gateway that starts during a rotation must not be ready with the old ones.
   */
  async start(): Promise<void> {
    const { source, watchFile } = this.#deps;
    if (source !== undefined && !this.#closed) {
      this.#credentialWatch = this.#watchCredentials(source);
      if (watchFile) this.#fileWatch = new FileWatch(source.files, () => this.#readChanged(source));
    }
    this.#started.resolve();
    await this.#credentialWatch?.firstRead;
  }

  /** Both planes are open. */
  ready(): void {
    const { metrics, serviceManager } = this.#deps;
    metrics.configLastReload.setToCurrentTime();
    this.#countSuccess();
    this.#serviceManager = serviceManager;
    if (!this.#closed) serviceManager?.ready(this.#status);
  }

  /** Activates the configuration of the file, or the one that `load` resolves to. Never rejects. */
  reload(load: (() => Promise<AppSetup>) | undefined, cause: ReloadCause): Promise<ReloadResult> {
    return this.#inTurn(async () => {
      const { source } = this.#deps;
      const read = load ?? (source && (() => source.readAgain()));
      if (this.#closed) return impossible(CLOSED);
      if (read === undefined) return impossible(NO_FILE);
      return this.#reload(cause, read);
    });
  }

  /** Reads the credentials again at once. Resolves when a change of them is in use, or refused. */
  async readCredentials(): Promise<void> {
    const { source } = this.#deps;
    if (source === undefined || this.#closed) return;
    const before = this.#credentialWatch;
    this.#credentialWatch = this.#watchCredentials(source);
    await before?.close();
    await this.#credentialWatch.firstRead;
  }

  get state(): ConfigurationState {
    return {
      refused: this.#refusal?.shown ?? null,
      unreadable: this.#unreadable.length > 0 ? firstOf(this.#unreadable) : null,
      needsRestart: this.#needsRestart,
    };
  }

  /** One line about the configuration, for the service manager. */
  get #status(): string {
    const { ok, detail, warning } = configurationCheck(this.state);
    const line = ok ? 'serving' : detail;
    return warning === undefined ? line : `${line}; ${warning}`;
  }

  /** Refuses later reloads, but for changed credentials: a gateway that drains still serves. */
  refuse(): void {
    this.#closed = true;
    // Not awaited: it may wait for a reload.
    void this.#fileWatch?.close();
  }

  /** Ends the watch of credentials, too. */
  async close(): Promise<void> {
    this.refuse();
    await this.#credentialWatch?.close();
  }

  #inTurn<T>(reload: () => Promise<T>): Promise<T> {
    const done = this.#last.then(reload);
    // A rejection in the chain would block every later reload.
    this.#last = done.catch(reportError);
    return done;
  }

  async #reload(cause: ReloadCause, load: () => Promise<AppSetup>): Promise<ReloadResult> {
    if (!this.#closed) this.#serviceManager?.reloading();
    const result = await this.#activate(cause, load);
    if (!this.#closed) this.#serviceManager?.ready(this.#status);
    return result;
  }

  async #activate(cause: ReloadCause, load: () => Promise<AppSetup>): Promise<ReloadResult> {
    let pinned: Pinned;
    let activation: Activation;
    const { listenTls } = this.#active;
    try {
      const next = await load();
      pinned = pin(this.#active, next);
      activation = await this.#commit(pinned.setup, listenTls);
    } catch (error) {
      if (this.#closed) return impossible(CLOSED);
      return error instanceof OtherFilesError ? impossible(OTHER_FILES) : this.#refused(cause, error);
    }
    const reloaded = this.#reloaded(cause, pinned, activation);
    try {
      await activation.settled;
      this.#isApplied = true;
      return reloaded;
    } catch (error) {
      this.#isApplied = false;
      const msg = 'configuration in use, but not every credential and limit was applied; reload again';
      this.#deps.log.error({ reason: messageOf(error) }, msg);
      return { ...reloaded, warnings: [...reloaded.warnings, msg] };
    }
  }

  /**
   * `known`: the certificates of listeners when the setup began to be read.
   * @throws Error if the workers cannot activate the setup; the active one stays then
   */
  async #commit(setup: AppSetup, known: AppSetup['listenTls']): Promise<Activation> {
    const { workers, audit, flightFiles, log } = this.#deps;
    const before = this.#active;
    const activation = await workers.activate(setup);
    const { listenTls } = this.#active;
    this.#active = setup;
    this.#activeSince = Date.now();
    for (const [listener, tls] of listenTls.entries()) {
      // A certificate that was renewed meanwhile: what the setup has may be older, with fewer that are revoked.
      if (tls !== undefined && tls !== known[listener]) this.renewTls({ listener, tls });
    }
    audit.configure(setup.config.audit);
    log.level = setup.config.log.level;
    flightFiles.folder = setup.config.log.flightRecords;
    void this.#warnOfWithdrawn(before, setup).catch(reportError);
    return activation;
  }

  /** A next version that was withdrawn may have become the one in use shortly before. */
  async #warnOfWithdrawn({ credentials: before }: AppSetup, { credentials }: AppSetup): Promise<void> {
    const withdrawn = withdrawnBetween(before, credentials);
    if (withdrawn.length === 0) return;
    const { deployments: states } = mergeStates((await this.#deps.workers.states()).states);
    for (const { name: credential, version } of withdrawn) {
      const deployments = usedAt(states, credential, version);
      const msg =
        'next version withdrawn, but it is in use, and stays until the upstream refuses it or a restart';
      if (deployments.length > 0) this.#deps.log.warn({ credential, version, deployments }, msg);
    }
  }

  #reloaded(cause: ReloadCause, pinned: Pinned, { changed }: Activation): Reloaded {
    const { log, metrics, audit, source } = this.#deps;
    const { setup } = pinned;
    // Changed credentials are not read from the file.
    const needsRestart = cause.by === 'credentials' ? this.#needsRestart : pinned.needsRestart;
    metrics.configReloads.inc({ result: 'success' });
    audit.admin('reload', { result: 'success', ...cause, changed });
    log.info(
      { ...cause, deployments: Object.keys(setup.config.deployments), changed },
      'configuration reloaded',
    );
    if (needsRestart.length > 0) log.warn({ keys: needsRestart }, 'these keys change with a restart only');
    this.#needsRestart = needsRestart;
    // Changed credentials do not make the file right.
    if (cause.by !== 'credentials' || this.#refusal?.cause.by === 'credentials') this.#refusal = undefined;
    if (cause.by !== 'credentials' && source !== undefined && !this.#closed) {
      this.#noteUnreadable([]);
      void this.#credentialWatch?.close();
      this.#credentialWatch = this.#watchCredentials(source);
    }
    metrics.configLastReload.setToCurrentTime();
    this.#countSuccess();
    return { result: 'success', changed, needsRestart, warnings: setup.warnings.map(formatIssue) };
  }

  #refused(cause: ReloadCause, error: unknown): ReloadRefused {
    const { log, metrics, audit } = this.#deps;
    const reason = messageOf(error);
    const issues = error instanceof ConfigError ? error.issues : [];
    // The watches try an unchanged file again and again, because something else may have been the cause.
    const isKnown = (cause.by === 'watch' || cause.by === 'credentials') && this.#refusal?.reason === reason;
    if (!isKnown) {
      metrics.configReloads.inc({ result: 'failure' });
      audit.admin('reload', { result: 'failure', ...cause });
      log.error({ ...cause, reason }, 'configuration refused; keeping the current one');
      // A refused file stays refused until a file is accepted.
      if (cause.by !== 'credentials' || this.#refusal === undefined) {
        this.#refusal = { cause, reason, shown: shown(error, issues) };
      }
      this.#countSuccess();
    }
    const status = error instanceof NoWorkerError ? 409 : issues.length > 0 ? 422 : 500;
    return { result: 'failure', status, reason: shown(error, issues), issues };
  }

  #countSuccess(): void {
    const isWell = this.#refusal === undefined && this.#unreadable.length === 0;
    this.#deps.metrics.configLastReloadSuccessful.set(isWell ? 1 : 0);
  }

  #noteUnreadable(issues: readonly string[]): void {
    const { log } = this.#deps;
    const reason = issues.join('\n');
    if (reason === this.#unreadable.join('\n')) return;
    this.#unreadable = issues;
    this.#countSuccess();
    if (issues.length === 0) log.info('every credential can be read again');
    else log.error({ reason }, 'credentials cannot be read; keeping their current versions');
    // In turn: during a reload it would say that this is over.
    void this.#inTurn(async () => {
      if (!this.#closed) this.#serviceManager?.ready(this.#status);
    });
  }

  /** Resolves to true if the file that the watch found changed is in use. */
  async #readChanged(source: SetupSource): Promise<boolean> {
    if (this.#refusal === undefined && !(await source.isChanged())) return true;
    if (this.#closed) return true;
    const { result } = await this.reload(undefined, { by: 'watch' });
    return result === 'success';
  }

  #watchCredentials(source: SetupSource): FileWatch {
    const { log } = this.#deps;
    const { context, versions } = source;
    const { config } = this.#active;
    const watch = watchCredentials({
      credentials: config.credentials,
      sealed: config.sealed,
      context,
      versions,
      inUse: () => this.#active.credentials,
      onChange: (read) => {
        log.info('credentials changed: reloading');
        for (const { path, message } of passwordWarnings(config.credentials, read)) {
          log.warn(`${formatPath(path)}: ${message}`);
        }
        const load = async (): Promise<AppSetup> => ({
          ...this.#active,
          credentials: withKept(config.credentials, read, this.#active.credentials),
        });
        return this.#inTurn(async () => {
          // If the file was reloaded in the meantime, this setup is outdated, and the new watch reports the
          // change.
          if (this.#credentialWatch !== watch) return true;
          const { result } = await this.#reload({ by: 'credentials' }, load);
          return result === 'success' && this.#isApplied;
        });
      },
      onRead: (issues) => this.#noteUnreadable(issues),
    });
    return watch;
  }
}

function impossible(reason: string): ReloadRefused {
  return { result: 'failure', status: 409, reason, issues: [] };
}

/** Shortens the reason of a refusal. Other errors than issues are in the log only: they can quote a secret. */
function shown(error: unknown, issues: readonly LocatedIssue[]): string {
  if (error instanceof NoWorkerError) return error.message;
  if (!(error instanceof ConfigError)) return 'an unexpected error, which the log describes';
  return firstOf(issues.map(formatIssue));
}

function firstOf(issues: readonly string[]): string {
  const first = issues.slice(0, SHOWN_ISSUES).join('; ');
  const cut = first.length > SHOWN_LENGTH ? `${first.slice(0, SHOWN_LENGTH)}…` : first;
  const left = issues.length - SHOWN_ISSUES;
  return left > 0 ? `${cut}; and ${left} more, which the log lists` : cut;
}
