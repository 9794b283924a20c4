import { setTimeout as delay } from 'node:timers/promises';
import { ignoreAbort } from '../base/expected-errors.ts';
import type { OpenAddress } from '../base/open-port.ts';
import { reportError } from '../base/report-error.ts';
import { runAtOnce, runInSlices, slices } from '../base/steps.ts';
import type { ChallengeStore } from '../challenges/store/store.ts';
import { sharedSettings } from '../config/listen.ts';
import type { ClientUse } from '../control/client-view.ts';
import { countNames, takeSnapshot } from '../control/merged-metrics.ts';
import type { AuditLines } from '../control/snapshot.ts';
import { NO_FORMER, type WorkerState } from '../control/state.ts';
import { type CredentialSet, keepInUse } from '../credentials/credentials.ts';
import type { CountedRefusal } from '../gateway/error-log.ts';
import { Gateway, type GatewayOptions } from '../gateway/gateway.ts';
import type { Listener } from '../gateway/listener.ts';
import type { Identification } from '../identity/identification.ts';
import type { Limits } from '../limits/limits.ts';
import { deploymentIn } from '../setup/deployments.ts';
import type { AppSetup } from '../setup/setup.ts';
import { BodyMemory } from '../transport/request-body.ts';
import type { VersionTest } from '../upstream/credential.ts';
import type { UpstreamAddress } from '../upstream/upstream-address.ts';
import { changesOf } from './changes.ts';
import type { ProcessParts } from './compose.ts';
import {
  buildIdentification,
  createListeners,
  limitsOptions,
  openLimits,
  openStore,
  openUpstreamDeps,
  type SharedStores,
} from './data-plane-parts.ts';
import {
  buildDeployments,
  closeAll,
  dropUnknownCredentials,
  gatewayOptions,
  offerCredentials,
  restoreAll,
  type ServedDeployment,
  type SharedUpstreamDeps,
  takeOverVersions,
  testTarget,
  warnOfMissingAddresses,
  withOther,
} from './deployments.ts';
import { setClientEnds, setCounts, setExpiries, setGauges } from './gauges.ts';
import type {
  Activation,
  DeploymentVersion,
  ReportOptions,
  TlsRenewal,
  Worker,
  WorkerReport,
  Workers,
  WorkersReport,
} from './worker.ts';
import { auditLines, versionsInUse, workerState } from './worker-state.ts';

interface DataPlaneDeps extends Omit<ProcessParts, 'build' | 'merged'> {
  /** The stores that a process without Redis shares with others; undefined: it shares nothing. */
  readonly stores?: SharedStores | undefined;
}

/** An active configuration with the parts that were built from it. */
interface Generation {
  readonly setup: AppSetup;
  readonly deployments: readonly ServedDeployment[];
  readonly identification: Identification;
}

/** A configuration that is ready to be activated: every step that can fail is done. */
export interface Prepared extends Generation {
  readonly gateway: GatewayOptions;
  readonly applyLimits: () => void;
  /** Names of the changed sections and entries. */
  readonly changed: readonly string[];
}

/** Serves requests under one configuration at a time: builds and connects its parts, and replaces them. */
export class DataPlane implements Workers, Worker {
  readonly #deps: DataPlaneDeps;
  readonly #store: ChallengeStore;
  readonly #upstreamDeps: SharedUpstreamDeps;
  readonly #limits: Limits;
  readonly #gateway: Gateway;
  readonly #listeners: readonly Listener[];
  #active: Generation;
  #storeUp: boolean;
  #storeFailing: readonly string[] = [];
  #live = false;
  /** True once the drain has closed the upstreams; nothing can be activated then. */
  #isClosed = false;
  /** Replaced upstreams that still finish requests; no reload waits for them. */
  readonly #retiring = new Set<Promise<void>>();
  #closing: Promise<void> | undefined;
  readonly #hurry = new AbortController();

  constructor(setup: AppSetup, deps: DataPlaneDeps) {
    const { clock, log, metrics, bufferGc, tracing, stores, audit } = deps;
    log.level = setup.config.log.level;
    this.#deps = deps;
    this.#storeUp = setup.redis === undefined;
    const onStore = (up: boolean, reason: string | undefined): void => {
      this.#storeUp = up;
      this.#storeFailing = reason === undefined ? [] : [reason];
    };
    this.#store = openStore(setup.redis, { stores, metrics, log, onUp: onStore });
    const bodyMemory = new BodyMemory(sharedSettings(setup.config.listen).limits.bodyMemory);
    this.#upstreamDeps = openUpstreamDeps(this.#store, { ...deps, bodyMemory });
    const deployments = runAtOnce(buildDeployments(setup, this.#upstreamDeps, []));
    const identification = runAtOnce(buildIdentification(setup.config, deps));
    this.#active = { setup, deployments, identification };
    this.#limits = openLimits(setup, { stores, clock, metrics, log });
    const options = gatewayOptions(setup, deployments, identification);
    this.#gateway = new Gateway(options, {
      audit,
      clock,
      log,
      metrics,
      tracing,
      bufferGc,
      limits: this.#limits,
    });
    this.#listeners = createListeners(setup, this.#gateway, {
      ...deps,
      isShared: (address) => this.#active.identification.isShared(address),
    });
  }

  /** True from the opening of the ports to the end of the drain. */
  get live(): boolean {
    return this.#live;
  }

  /**
   * Loads what other processes share, and opens the ports.
   * @throws Error if one of them cannot be opened; the drain closes the others
   */
  async start(): Promise<OpenAddress[]> {
    const { deployments } = this.#active;
    await Promise.all([this.#limits.restore(), restoreAll(deployments)]);
    const listening: OpenAddress[] = [];
    for (const listener of this.#listeners) listening.push(await listener.listen());
    this.#live = true;
    this.#deps.metrics.workers.set(1);
    setExpiries(this.#deps.metrics, this.#listeners);
    await warnOfMissingAddresses(this.#deps.log, deployments);
    return listening;
  }

  /**
   * Builds every part of another configuration without changing the active one.
   * @throws Error if a part cannot be built; parts that were built are closed
   */
  async prepare(given: AppSetup): Promise<Prepared> {
    const { setup: inForce, deployments: running, identification: before } = this.#active;
    const known = running.flatMap(({ upstream }) => upstream.addresses.flatMap((each) => each.credentials));
    const credentials = keepInUse(inForce.credentials, given.credentials, versionsInUse(known));
    const setup = { ...given, credentials };
    const deployments: ServedDeployment[] = [];
    try {
      await runInSlices(buildDeployments(setup, this.#upstreamDeps, running, deployments));
      await restoreAll(withOther(deployments, running));
      const identification = await runInSlices(buildIdentification(setup.config, this.#deps, before));
      const gateway = gatewayOptions(setup, deployments, identification);
      const applyLimits = await runInSlices(this.#limits.prepare(limitsOptions(setup.config)));
      const changed = await runInSlices(changesOf(inForce, setup));
      if (this.#isClosed) throw new Error('the gateway is shutting down');
      return { setup, deployments, identification, gateway, applyLimits, changed };
    } catch (error) {
      this.abandon({ deployments });
      throw error;
    }
  }

  /** Drops what was prepared, and the credentials that it offered to deployments that are running. */
  abandon({ deployments }: Pick<Prepared, 'deployments'>): void {
    const { setup, deployments: running } = this.#active;
    this.#retire(deployments, running);
    for (const deployment of running) dropUnknownCredentials(setup, deployment);
  }

  /** Activates a configuration synchronously, so that each request sees either the old or the new one. */
  commit({ setup, deployments, identification, gateway, applyLimits }: Prepared): void {
    if (this.#isClosed) {
      this.abandon({ deployments });
      return;
    }
    const { deployments: before } = this.#active;
    this.#active = { setup, deployments, identification };
    takeOverVersions(deployments, before);
    this.#gateway.configure(gateway);
    applyLimits();
    for (const [listener, tls] of setup.listenTls.entries()) {
      if (tls !== undefined) this.#renewTls({ listener, tls });
    }
    this.#deps.audit.configure(setup.config.audit);
    this.#deps.log.level = setup.config.log.level;
    this.#deps.flightFiles.folder = setup.config.log.flightRecords;
    this.#retire(before, deployments);
  }

  /** Offers credentials to the upstreams that were kept, and loads limits of other processes; after the commit. */
  async settle({ setup, deployments }: Prepared): Promise<void> {
    const pause = slices();
    for (const deployment of deployments) {
      offerCredentials(setup, deployment);
      await pause();
    }
    await this.#limits.restore();
    await warnOfMissingAddresses(this.#deps.log, deployments);
  }

  async activate(setup: AppSetup): Promise<Activation> {
    const prepared = await this.prepare(setup);
    this.commit(prepared);
    const settled = this.settle(prepared).catch((error) => {
      this.#deps.uncaught(error);
      throw error;
    });
    return { changed: prepared.changed, settled };
  }

  /** Offers a credential whose sources have a new version to the upstreams, which test it before use. */
  offer(set: CredentialSet): void {
    this.#deps.audit.admin('credential-read', { credential: set.name });
    const { setup, deployments } = this.#active;
    const credentials = new Map(setup.credentials).set(set.name, set);
    this.#active = { ...this.#active, setup: { ...setup, credentials } };
    for (const { upstream } of deployments) for (const address of upstream.addresses) address.offer(set);
  }

  async testVersion({ deployment, ...choice }: DeploymentVersion): Promise<VersionTest> {
    const { setup } = this.#active;
    const served = this.#served(deployment);
    const found = deploymentIn(setup, deployment);
    if (served === undefined || found === undefined) return 'unknown';
    return served.upstream.preferred.testVersion(choice, testTarget(found, choice.credential));
  }

  async promote(choices: readonly DeploymentVersion[]): Promise<void> {
    const missing = this.#missing(choices);
    if (missing !== undefined) throw new Error(missing);
    for (const { deployment, ...choice } of choices)
      for (const address of this.#addressesOf(deployment)) address.promote(choice);
  }

  async missing(choices: readonly DeploymentVersion[]): Promise<string | undefined> {
    return this.#missing(choices);
  }

  /** Synchronous, so that nothing changes between the check and the promotion. */
  #missing(choices: readonly DeploymentVersion[]): string | undefined {
    const found = choices.find(
      ({ deployment, ...choice }) => !this.#addressesOf(deployment).some((address) => address.has(choice)),
    );
    return found && `${found.deployment} has no version ${found.version} of ${found.credential}`;
  }

  /** All refusals of clients since the start. */
  get countedRefusals(): CountedRefusal[] {
    return this.#gateway.refusals.all;
  }

  async clientUse(client: string): Promise<ClientUse> {
    const { refusals, keysSeen } = this.#gateway;
    return {
      limits: this.#limits.useOf(client) ?? null,
      refusals: refusals.of(client),
      keys: keysSeen.of(client),
    };
  }

  async flightRecord(): Promise<string> {
    return `${this.#deps.recorder.lines('asked').join('\n')}\n`;
  }

  async renewTls(renewal: TlsRenewal): Promise<void> {
    this.#renewTls(renewal);
  }

  #renewTls({ listener, tls }: TlsRenewal): void {
    this.#listeners[listener]?.renewTls(tls);
    if (this.#live) setExpiries(this.#deps.metrics, this.#listeners);
  }

  async reopenAccessLog(): Promise<void> {
    this.#gateway.accessLog.reopen();
  }

  /** Gauges of thousands of deployments take long to read, so only a scrape, which wants all metrics, reads them. */
  async observe(names?: readonly string[]): Promise<void> {
    setCounts(this.#deps.metrics, this.#active.deployments, this.#deps.audit);
    if (names !== undefined) return;
    setClientEnds(this.#deps.metrics, this.#active.setup.config);
    await setGauges(this.#deps.metrics, (await this.state()).deployments);
  }

  auditLines(position: number): AuditLines {
    return auditLines(this.#deps.audit, position);
  }

  async report({ auditFrom, metrics, withState }: ReportOptions): Promise<WorkerReport> {
    const { registry } = this.#deps.metrics;
    const names = metrics === 'counts' ? countNames(registry) : metrics === 'all' ? undefined : metrics;
    await this.observe(names);
    const { lines, position } =
      auditFrom === undefined ? { lines: [], position: undefined } : this.auditLines(auditFrom);
    return {
      state: withState ? await this.state() : undefined,
      metrics: await takeSnapshot(registry, names),
      lines,
      refusals: [],
      keysSeen: typeof metrics === 'string' ? this.#gateway.keysSeen.all : [],
      auditPosition: position,
      auditHead: this.#deps.audit.head,
    };
  }

  state(): Promise<WorkerState> {
    const stage = this.#closing !== undefined ? 'draining' : this.#live ? 'serving' : 'starting';
    return workerState({
      ...this.#active,
      ...this.#deps,
      stage,
      listeners: this.#listeners,
      storeUp: this.#storeUp,
      storeFailing: this.#storeFailing,
      errors: this.#gateway.errors.recent,
    });
  }

  async states(): Promise<WorkersReport> {
    return { states: [await this.state()], former: NO_FORMER, primary: null };
  }

  /**
   * Shuts down as a load balancer requires: reports not ready, serves for `drain.delay`, then accepts no
   * more connections, lets the open ones end, and closes everything but the audit log. `hurry` skips the rest of the
   * delay. `withDelay`: false if others serve on the same port already. May be called more than once.
   */
  drain(withDelay = true): Promise<void> {
    this.#closing ??= this.#drain(withDelay);
    return this.#closing;
  }

  /** Ends the delay of `drain`, now or when it begins, and connections without a request. */
  async hurry(): Promise<void> {
    this.#hurry.abort();
  }

  async #drain(withDelay: boolean): Promise<void> {
    const { delay: delayMs, timeout } = this.#active.setup.config.drain;
    if (this.#live) await this.#drainListeners(withDelay ? delayMs : 0, timeout);
    else await this.#closeListeners(0);
    this.#live = false;
    this.#isClosed = true;
    await Promise.all([closeAll(this.#active.deployments), ...this.#retiring]);
    // Requests that were cut off wait for their audit records; their lines and counts come after these.
    await this.#gateway.idle();
    await Promise.all([this.#store.close(), this.#limits.close(), this.#gateway.accessLog.close()]);
  }

  /** Resolves when no connection is open. `hurry` skips the delay and ends connections without a request. */
  async #drainListeners(delayMs: number, timeoutMs: number): Promise<void> {
    const { signal } = this.#hurry;
    await delay(delayMs, undefined, { signal }).catch(ignoreAbort);
    const close = (): void => void this.#closeListeners(timeoutMs);
    if (signal.aborted) close();
    else signal.addEventListener('abort', close, { once: true });
    await Promise.all(this.#listeners.map((listener) => listener.drain(timeoutMs)));
  }

  async #closeListeners(timeoutMs: number): Promise<void> {
    await Promise.all(this.#listeners.map((listener) => listener.close(timeoutMs)));
  }

  /** Closes the upstreams of `deployments` that `others` do not use. */
  #retire(deployments: readonly ServedDeployment[], others: readonly ServedDeployment[]): void {
    const closed = closeAll(withOther(deployments, others)).catch(reportError);
    this.#retiring.add(closed);
    void closed.then(() => this.#retiring.delete(closed));
  }

  #served(deployment: string): ServedDeployment | undefined {
    return this.#active.deployments.find(({ name }) => name === deployment);
  }

  #addressesOf(deployment: string): readonly UpstreamAddress[] {
    return this.#served(deployment)?.upstream.addresses ?? [];
  }
}
