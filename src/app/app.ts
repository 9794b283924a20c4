import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { type Audit, noAudit } from '../audit/audit.ts';
import type { BufferGc } from '../base/buffer-gc.ts';
import type { Clock } from '../base/clock.ts';
import type { FileWatch } from '../base/file-watch.ts';
import type { Log } from '../base/log.ts';
import { reportError } from '../base/report-error.ts';
import { runAtOnce, runInSlices, slices } from '../base/steps.ts';
import { NoncePools } from '../challenges/pools.ts';
import type { ChallengeStore } from '../challenges/store/store.ts';
import { CONSOLE_PACE, type ConsolePace } from '../control/console.ts';
import { ControlPlane } from '../control/control.ts';
import type { Readiness } from '../control/readiness.ts';
import type { ReloadResult } from '../control/reload.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { type Deployment, Gateway, type GatewayOptions } from '../gateway/gateway.ts';
import type { ListenTls } from '../gateway/listen-tls.ts';
import { Listener } from '../gateway/listener.ts';
import type { Identification } from '../identity/identification.ts';
import type { Limits } from '../limits/limits.ts';
import { MergedMetrics } from '../metrics/merged-metrics.ts';
import { type BuildInfo, Metrics } from '../metrics/metrics.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { SetupSource } from '../setup/setup-source.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { BodyMemory } from '../transport/request-body.ts';
import { CredentialSelectors } from '../upstream/credential-selectors.ts';
import { CheckPace } from '../upstream/health-check.ts';
import type { UpstreamDeps } from '../upstream/upstream.ts';
import { changesOf } from './changes.ts';
import { consoleSource } from './console.ts';
import {
  buildDeployments,
  closeAll,
  dropUnknownCredentials,
  gatewayOptions,
  offerCredentials,
  restoreAll,
  withOther,
} from './deployments.ts';
import { warnOfMissingAddresses } from './egress.ts';
import { observe, readiness } from './health.ts';
import { buildIdentification } from './identity.ts';
import { limitsOptions, openLimits } from './limits.ts';
import { watchListenTls } from './listen-tls.ts';
import { type Activation, type ReloadCause, Reloads } from './reloads.ts';
import type { ServiceManager } from './service-manager.ts';
import { openStore } from './store.ts';
import { uncaughtErrors } from './uncaught.ts';
import { UpstreamEvents } from './upstream-events.ts';

export interface AppDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly build: BuildInfo;
  readonly bufferGc: BufferGc;
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid: number | undefined;
  /** The audit log, which the app closes; undefined: nothing is recorded. */
  readonly audit?: Audit;
  /** Undefined if tracing is off. */
  readonly tracing: Tracing | undefined;
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

/** An active configuration with the parts that were built from it. */
interface Generation {
  readonly setup: AppSetup;
  readonly deployments: readonly Deployment[];
  readonly identification: Identification;
  /** Time of its activation, in Unix milliseconds. */
  readonly since: number;
}

/** A configuration that is ready to be activated: every step that can fail is done. */
interface Prepared extends Omit<Generation, 'since'> {
  readonly gateway: GatewayOptions;
  readonly applyLimits: () => void;
  /** Names of the changed sections and entries. */
  readonly changed: readonly string[];
}

/** The whole gateway: builds and connects its parts, and replaces configurations. */
export class App {
  readonly #deps: AppDeps;
  /** The setup at the start; parts of it cannot change while the gateway runs. */
  readonly #setup: AppSetup;
  readonly #audit: Audit;
  readonly #metrics: Metrics;
  readonly #store: ChallengeStore;
  readonly #upstreamDeps: UpstreamDeps;
  readonly #limits: Limits;
  readonly #gateway: Gateway;
  readonly #listener: Listener;
  readonly #control: ControlPlane;
  readonly #reloads: Reloads;
  #active: Generation;
  #listening: { readonly address: string; readonly port: number };
  #storeUp: boolean;
  #live = false;
  /** Replaced upstreams that still finish requests; no reload waits for them. */
  readonly #retiring = new Set<Promise<void>>();
  #tlsWatch: FileWatch | undefined;
  #closing: Promise<void> | undefined;
  readonly #hurry = new AbortController();
  /** Counts and logs an error that reached no caller. Never throws. */
  readonly uncaught: (error: unknown) => void;

  constructor(setup: AppSetup, deps: AppDeps) {
    const { clock, log, build, bufferGc, tracing, audit = noAudit } = deps;
    const { source, watchFile = false, serviceManager } = deps;
    log.level = setup.config.log.level;
    this.#deps = deps;
    this.#setup = setup;
    this.#audit = audit;
    this.#metrics = new Metrics(build, tracing !== undefined);
    this.#storeUp = setup.redis === undefined;
    this.#store = openStore(setup.redis, this.#metrics, log, (up) => {
      this.#storeUp = up;
    });
    this.#upstreamDeps = this.#openUpstreamDeps();
    const deployments = runAtOnce(buildDeployments(setup, this.#upstreamDeps, []));
    const identification = runAtOnce(buildIdentification(setup.config, this.#identityDeps));
    this.#active = { setup, deployments, identification, since: Date.now() };
    this.#limits = openLimits(setup, clock, this.#metrics, log);
    const { metrics, limits } = { metrics: this.#metrics, limits: this.#limits };
    const options = gatewayOptions(setup, deployments, identification);
    this.#gateway = new Gateway(options, { audit, clock, log, metrics, tracing, bufferGc, limits });
    this.#listener = new Listener(this.#gateway, {
      ...setup.config.listen.limits,
      tls: setup.listenTls,
      isShared: (address) => this.#active.identification.isShared(address),
      onRefused: (limit) => metrics.connectionsRefused.inc({ limit }),
    });
    this.#listening = setup.config.listen;
    this.uncaught = uncaughtErrors(log, clock, metrics);
    const activate = (next: AppSetup): Promise<Activation> => this.#activate(next);
    this.#reloads = new Reloads(setup, {
      source,
      watchFile,
      log,
      metrics,
      audit,
      serviceManager,
      activate,
    });
    this.#control = this.#openControl();
  }

  /**
   * Opens both planes; resolves to their addresses.
   * @throws Error if a port cannot be opened; nothing stays open then
   */
  async start(): Promise<{ listen: AddressInfo; control: AddressInfo }> {
    const { log, build, uid } = this.#deps;
    const { config, listenTls } = this.#setup;
    const { deployments } = this.#active;
    await Promise.all([this.#limits.restore(), restoreAll(deployments)]);
    const addresses = await this.#openPlanes().catch(async (error) => {
      await this.#audit.close();
      throw error;
    });
    this.#listening = addresses.listen;
    this.#live = true;
    await warnOfMissingAddresses(log, deployments);
    const { version, node } = build;
    this.#audit.admin('start', { version, node, deployments: deployments.map(({ name }) => name) });
    this.#metrics.listenCertificateExpiry.set(listenTls?.expires ?? 0);
    this.#tlsWatch = watchListenTls(config.listen.tls, listenTls, {
      log,
      uid,
      renew: (tls) => this.#renewTls(tls),
    });
    this.#reloads.start();
    return addresses;
  }

  /**
   * Activates the configuration of the file, or the one that `load` resolves to. The current one stays if it
   * cannot be read or built. Never rejects.
   */
  reload(load?: () => Promise<AppSetup>, cause: ReloadCause = { by: 'signal' }): Promise<ReloadResult> {
    // After a rotation, also if the configuration is refused.
    this.#gateway.reopenAccessLog();
    return this.#reloads.reload(load, cause);
  }

  /** Offers a credential whose sources have a new version to the upstreams, which test it before use. */
  offer(set: CredentialSet): void {
    this.#audit.admin('credential-read', { credential: set.name });
    const { setup, deployments } = this.#active;
    const credentials = new Map(setup.credentials).set(set.name, set);
    this.#active = { ...this.#active, setup: { ...setup, credentials } };
    for (const { upstream } of deployments) {
      upstream.offerProxy(set);
      if (upstream.uses(set.name)) upstream.offer(set);
    }
  }

  /**
   * Shuts down as a load balancer requires: reports not ready, serves for `drain.delay`, then accepts no
   * more connections, lets the open ones end, and closes everything. `close` skips the rest of the delay.
   */
  drain(): Promise<void> {
    this.#closing ??= this.#drain();
    return this.#closing;
  }

  /** Refuses new requests, finishes the current ones and closes everything. May be called more than once. */
  close(): Promise<void> {
    this.#hurry.abort();
    return this.drain();
  }

  /** @throws Error if the setup cannot be activated; the active one stays then */
  async #activate(setup: AppSetup): Promise<Activation> {
    const prepared = await this.#prepare(setup);
    if (this.#closing !== undefined) {
      this.#retire(prepared.deployments, this.#active.deployments);
      throw new Error('the gateway is shutting down');
    }
    this.#commit(prepared);
    const settled = this.#settle(prepared).catch((error) => {
      this.uncaught(error);
      throw error;
    });
    return { changed: prepared.changed, settled };
  }

  /**
   * Builds every part of another configuration without changing the active one.
   * @throws Error if a part cannot be built; parts that were built are closed
   */
  async #prepare(setup: AppSetup): Promise<Prepared> {
    const { setup: inForce, deployments: running } = this.#active;
    const deployments: Deployment[] = [];
    try {
      await runInSlices(buildDeployments(setup, this.#upstreamDeps, running, deployments));
      await restoreAll(withOther(deployments, running));
      const identification = await runInSlices(buildIdentification(setup.config, this.#identityDeps));
      const gateway = gatewayOptions(setup, deployments, identification);
      const applyLimits = await runInSlices(this.#limits.prepare(limitsOptions(setup.config)));
      const changed = await runInSlices(changesOf(inForce, setup));
      return { setup, deployments, identification, gateway, applyLimits, changed };
    } catch (error) {
      this.#retire(deployments, running);
      for (const deployment of running) dropUnknownCredentials(inForce, deployment);
      throw error;
    }
  }

  /** Activates a configuration synchronously, so that each request sees either the old or the new one. */
  #commit({ setup, deployments, identification, gateway, applyLimits }: Prepared): void {
    const { deployments: before } = this.#active;
    this.#active = { setup, deployments, identification, since: Date.now() };
    this.#gateway.configure(gateway);
    applyLimits();
    this.#renewTls(setup.listenTls);
    this.#audit.configure(setup.config.audit);
    this.#deps.log.level = setup.config.log.level;
    this.#retire(before, deployments);
  }

  /** Offers credentials to the upstreams that were kept, and loads limits of other processes. */
  async #settle({ setup, deployments }: Prepared): Promise<void> {
    const pause = slices();
    for (const deployment of deployments) {
      offerCredentials(setup, deployment);
      await pause();
    }
    await this.#limits.restore();
    await warnOfMissingAddresses(this.#deps.log, deployments);
  }

  #renewTls(tls: ListenTls | undefined): void {
    if (tls === undefined) return;
    this.#listener.renewTls(tls);
    this.#metrics.listenCertificateExpiry.set(tls.expires);
  }

  /** Closes the upstreams of `deployments` that `others` do not use. */
  #retire(deployments: readonly Deployment[], others: readonly Deployment[]): void {
    const closed = closeAll(withOther(deployments, others)).catch(reportError);
    this.#retiring.add(closed);
    void closed.then(() => this.#retiring.delete(closed));
  }

  async #drain(): Promise<void> {
    const { delay: delayMs, timeout } = this.#active.setup.config.drain;
    this.#deps.serviceManager?.stopping();
    const reloadsClosed = this.#reloads.close();
    if (this.#live) await this.#drainListener(delayMs, timeout);
    else await this.#listener.close(0);
    this.#live = false;
    await Promise.all([this.#tlsWatch?.close(), reloadsClosed]);
    const upstreams = this.#active.deployments.map(({ upstream }) => upstream.close());
    await Promise.all([...upstreams, ...this.#retiring]);
    await Promise.all([this.#store.close(), this.#limits.close(), this.#gateway.close()]);
    await this.#control.close();
    await this.#audit.close('stop');
  }

  /** Resolves when no connection is open. `close` skips the delay and ends connections without a request. */
  async #drainListener(delayMs: number, timeoutMs: number): Promise<void> {
    const { signal } = this.#hurry;
    await delay(delayMs, undefined, { signal }).catch(() => undefined);
    const close = (): void => void this.#listener.close(timeoutMs);
    if (signal.aborted) close();
    else signal.addEventListener('abort', close, { once: true });
    await this.#listener.drain(timeoutMs);
  }

  async #openPlanes() {
    const { listen, control } = this.#setup.config;
    return {
      listen: await this.#listener.listen(listen.address, listen.port),
      control: await this.#control.listen(control.address, control.port).catch(async (error) => {
        await this.#listener.close(0);
        throw error;
      }),
    };
  }

  get #identityDeps() {
    return { log: this.#deps.log, metrics: this.#metrics };
  }

  #openUpstreamDeps(): UpstreamDeps {
    const { clock, log, tracing } = this.#deps;
    const metrics = this.#metrics;
    const pools = new NoncePools(this.#store);
    const events = new UpstreamEvents({ audit: this.#audit, log, metrics });
    const { onPolicyStep, onCrossProcess, onRotation, onHealth } = events;
    const { onCircuit, onAddressHealth, onPause } = events;
    const ofCredentials = { onPolicyStep, onCrossProcess, onRotation, onHealth };
    const selectors = new CredentialSelectors({ pools, clock, metrics, tracing, ...ofCredentials });
    const bodyMemory = new BodyMemory(this.#setup.config.listen.limits.bodyMemory);
    const checkPace = new CheckPace(clock);
    return { selectors, clock, metrics, bodyMemory, checkPace, onCircuit, onAddressHealth, onPause };
  }

  #readiness(): Promise<Readiness> {
    const stage = !this.#live ? 'starting' : this.#closing === undefined ? 'serving' : 'draining';
    const { setup, deployments } = this.#active;
    return readiness({
      stage,
      configuration: this.#reloads.check,
      storeUp: this.#storeUp,
      audit: this.#audit,
      deployments,
      wanted: setup.config.readiness,
    });
  }

  #openControl(): ControlPlane {
    const { clock, log, build, consoleFolder, consolePace = CONSOLE_PACE } = this.#deps;
    const metrics = this.#metrics;
    const audit = this.#audit;
    const merged = new MergedMetrics(metrics.registry);
    return new ControlPlane({
      tokenSha256: this.#setup.config.control.tokenSha256,
      scrape: async () => {
        await observe(metrics, this.#active.deployments, audit);
        return merged.text();
      },
      live: () => this.#live,
      readiness: () => this.#readiness(),
      reload: (address) => this.reload(undefined, { by: 'api', address }),
      console: consoleSource({
        values: (names) => merged.values(names),
        build,
        clock,
        audit,
        setup: () => this.#active.setup,
        configuredAt: () => this.#active.since,
        storeUp: () => this.#storeUp,
        readiness: () => this.#readiness(),
        deployments: () => this.#active.deployments,
        errors: () => this.#gateway.recentErrors,
      }),
      consoleFolder,
      pace: consolePace,
      onError: (error) => log.error({ cause: String(error) }, 'control plane request failed'),
      offer: () => ({
        version: build.version,
        listen: this.#listening,
        deployments: this.#active.deployments,
      }),
    });
  }
}
