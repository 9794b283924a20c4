import { setTimeout as delay } from 'node:timers/promises';
import type {
  Activation,
  DeploymentVersion,
  TlsRenewal,
  WantedMetrics,
  Workers,
  WorkersReport,
} from '../app/worker.ts';
import { auditState } from '../app/worker-state.ts';
import type { Audit } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import { ignoreAbort } from '../base/expected-errors.ts';
import type { Log } from '../base/log.ts';
import type { StoreServer } from '../base/message-calls.ts';
import type { OpenAddress } from '../base/open-port.ts';
import { reportError } from '../base/report-error.ts';
import type { ClientUse } from '../control/client-view.ts';
import type { MergedMetrics } from '../control/merged-metrics.ts';
import type { AuditLines } from '../control/snapshot.ts';
import { keepInUse } from '../credentials/credentials.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { AppSetup } from '../setup/setup.ts';
import { toTransfer } from '../setup/transfer.ts';
import type { VersionTest } from '../upstream/credential.ts';
import { activateIn } from './activation.ts';
import { freeNumber, type IdleLogs, WorkerHeads } from './audit-logs.ts';
import { forkWorker, RemoteWorker, STATE_ONLY } from './remote-worker.ts';
import { Reports } from './reports.ts';
import { WorkerVersions } from './worker-versions.ts';

/** Wait before a worker that has ended is replaced, in milliseconds: doubled with each failure. */
const BACK_OFF_MS = { first: 100, most: 30_000 } as const;
/** After this time a worker's end does not count as a failure of its start, in milliseconds. */
const STEADY_MS = 60_000;
/** Time for closing everything after a drain, in milliseconds. */
const CLOSE_MS = 15_000;
/** Interval in which counters and histograms of the workers are read: a worker that is killed loses no more. */
const KEEP_MS = 5_000;

interface FleetDeps {
  readonly clock: Clock;
  readonly log: Log;
  /** The log of the primary, which records the ends of workers. */
  readonly audit: Audit;
  readonly metrics: Metrics;
  readonly merged: MergedMetrics;
  /** Number of workers. */
  readonly workers: number;
  /** Nonces and limits that workers share without Redis. */
  readonly stores: readonly Pick<StoreServer<never>, 'serve'>[];
  readonly idleLogs: IdleLogs;
}

/** From `opening` on, a worker takes part in activations. */
type Stage = 'starting' | 'opening' | 'serving' | 'draining';

/** A worker that serves on these addresses. */
interface StartedWorker {
  readonly worker: RemoteWorker;
  readonly addresses: readonly OpenAddress[];
}

/** Serves requests in worker processes, replaces those that end, and gives all of them the same configuration. */
export class Fleet implements Workers {
  readonly #deps: FleetDeps;
  #setup: AppSetup;
  readonly #workers = new Map<RemoteWorker, Stage>();
  readonly #reports: Reports;
  readonly #versions = new WorkerVersions();
  readonly #heads: WorkerHeads;
  /** Resolves when the activation under way has ended; undefined: there is none. */
  #activating: Promise<unknown> | undefined;
  #isUpgrading = false;
  /** Workers that are about to replace others. */
  #replacing = 0;
  /** Ends and failed starts of workers since one has served for a while. */
  #failures = 0;
  #isLive = false;
  #closing: Promise<void> | undefined;
  readonly #stop = new AbortController();

  constructor(setup: AppSetup, deps: FleetDeps) {
    this.#setup = setup;
    this.#deps = deps;
    this.#reports = new Reports(deps);
    this.#heads = new WorkerHeads(deps.audit, deps.clock);
  }

  get live(): boolean {
    return this.#isLive;
  }

  auditLines(position: number): AuditLines {
    return this.#reports.auditLines(position);
  }

  async start(): Promise<readonly OpenAddress[]> {
    const { started, failed } = await this.#startAll();
    if (failed !== undefined) {
      for (const worker of this.#workers.keys()) {
        this.#workers.set(worker, 'draining');
        worker.kill();
      }
      throw failed.reason;
    }
    const addresses = started[0]?.addresses;
    if (addresses === undefined) throw new TypeError('a fleet has at least one worker');
    this.#isLive = true;
    // A worker may have ended while another one was still starting.
    this.#fill();
    this.#keepLogs();
    void this.#keepCounts();
    return addresses;
  }

  activate(setup: AppSetup): Promise<Activation> {
    const done = this.#activate(setup).finally(() => {
      this.#activating = undefined;
    });
    this.#activating = done.catch(() => undefined);
    return done;
  }

  renewTls(renewal: TlsRenewal): void {
    const listenTls = this.#setup.listenTls.with(renewal.listener, renewal.tls);
    this.#setup = { ...this.#setup, listenTls };
    // One that starts gets it with the setup. In another one, a reload under way would bring the certificate before back.
    for (const worker of this.#opened) worker.begin((calls) => worker.inTurn(() => calls.renewTls(renewal)));
  }

  reopenAccessLog(): void {
    for (const worker of this.#opened) worker.begin((calls) => calls.reopenAccessLog());
  }

  observe(names: WantedMetrics = 'all'): Promise<void> {
    // While the gateway drains, they serve; after an upgrade, others have replaced those that drain.
    const running = this.#closing === undefined ? this.#of('serving') : this.#opened;
    return this.#reports.observe(this.#opened, running.length, names);
  }

  async states(): Promise<WorkersReport> {
    await Promise.all(this.#opened.map((worker) => worker.update(STATE_ONLY)));
    const isClosing = this.#closing !== undefined;
    const serving = this.#of('serving');
    // After an upgrade, others have replaced those that drain.
    const counting = isClosing ? [...this.#workers.keys()] : serving;
    const configured = isClosing ? 0 : this.#deps.workers;
    const states = counting.flatMap(({ state }) => state ?? []);
    const draining = { stage: 'draining', serves: false } as const;
    return {
      // The last state of a worker that does not answer may be from before the drain.
      states: isClosing ? states.map((state) => ({ ...state, ...draining })) : states,
      former: this.#reports.former(isClosing ? [] : this.#of('draining')),
      primary: { serving: serving.length, configured, audit: auditState(this.#deps.audit) },
    };
  }

  async flightRecord(): Promise<string> {
    const workers = [...this.#of('serving'), ...this.#of('draining')];
    const asked = await Promise.allSettled(workers.map(({ calls }) => calls.flightRecord()));
    return asked.map((each) => (each.status === 'fulfilled' ? each.value : '')).join('');
  }

  clientUse(client: string): Promise<ClientUse> {
    return this.#reports.clientUse([...this.#of('serving'), ...this.#of('draining')], client);
  }

  testVersion(choice: DeploymentVersion): Promise<VersionTest> {
    return this.#versions.test(this.#of('serving'), choice);
  }

  promote(choices: readonly DeploymentVersion[]): Promise<void> {
    return this.#versions.promote(() => [...this.#of('opening'), ...this.#of('serving')], choices);
  }

  /**
   * Starts a worker of the program's present version for each one, and drains the old ones when all of the new ones
   * serve. If one cannot be started, the old ones stay. Never rejects.
   */
  async upgrade(): Promise<void> {
    const { log, audit } = this.#deps;
    if (this.#isUpgrading || this.#closing !== undefined || !this.#isLive) {
      log.warn('upgrade ignored: the start, another upgrade or the shutdown is under way');
      return;
    }
    this.#isUpgrading = true;
    log.info('upgrade: starting new workers');
    const { started, failed } = await this.#startAll();
    const renewed = started.map(({ worker }) => worker);
    audit.admin('upgrade', { result: failed === undefined ? 'success' : 'failure' });
    if (failed === undefined) log.info('upgrade: the new workers serve; the old ones drain');
    else if (this.#closing === undefined)
      log.error({ reason: messageOf(failed.reason) }, 'upgrade failed; keeping the old workers');
    const old = this.#of('serving').filter((worker) => !renewed.includes(worker));
    const leaving = failed === undefined ? old : renewed;
    const drained = Promise.all(leaving.map((worker) => this.#drainWorker(worker, false)));
    this.#fill();
    await drained;
    this.#isUpgrading = false;
    this.#keepLogs();
    if (failed === undefined) log.info('upgrade: the old workers have ended');
  }

  drain(): Promise<void> {
    this.#closing ??= this.#drain();
    return this.#closing;
  }

  hurry(): void {
    for (const worker of this.#opened) worker.begin((calls) => calls.hurry());
  }

  get #opened(): RemoteWorker[] {
    return [...this.#workers].flatMap(([worker, stage]) => (stage === 'starting' ? [] : [worker]));
  }

  /** `failed`: undefined if all of them could be started. */
  async #startAll(): Promise<{ started: StartedWorker[]; failed: PromiseRejectedResult | undefined }> {
    const starts = Array.from({ length: this.#deps.workers }, () => this.#startWorker());
    const results = await Promise.allSettled(starts);
    return {
      started: results.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : [])),
      failed: results.find((each) => each.status === 'rejected'),
    };
  }

  /** @throws Error if the worker cannot be built, cannot open a port, or ends */
  async #startWorker(): Promise<StartedWorker> {
    const worker = this.#fork();
    try {
      await this.#deps.idleLogs.release(worker.number);
      let given = this.#setup;
      await worker.open(toTransfer(given), this.#deps.workers);
      for (;;) {
        while (this.#activating !== undefined) await this.#activating;
        if (given === this.#setup) break;
        given = this.#setup;
        await worker.calls.prepare(toTransfer(given));
        await worker.calls.commit();
      }
      // From here on, whatever concerns all workers reaches this one.
      this.#setStage(worker, 'opening');
      // The file may have been renamed since the worker opened it.
      worker.begin((calls) => calls.reopenAccessLog());
      await this.#versions.adopt(worker, () => this.#of('serving'));
      const addresses = await worker.listen();
      this.#setStage(worker, 'serving');
      return { worker, addresses };
    } catch (error) {
      this.#setStage(worker, 'draining');
      worker.kill();
      await worker.ended;
      throw error;
    }
  }

  #fork(): RemoteWorker {
    const worker = new RemoteWorker(forkWorker(), freeNumber(this.#numbers));
    this.#workers.set(worker, 'starting');
    for (const store of this.#deps.stores) store.serve(worker.port);
    const begun = this.#deps.clock.now();
    void worker.ended.then((how) => this.#onEnd(worker, how, begun)).catch(reportError);
    return worker;
  }

  #onEnd(worker: RemoteWorker, how: string, begun: number): void {
    const { log, audit, metrics, clock } = this.#deps;
    const { number, pid } = worker;
    const stage = this.#workers.get(worker);
    this.#workers.delete(worker);
    this.#reports.ended(worker);
    this.#heads.recordEnd(worker);
    if (worker.hangs) {
      log.error({ worker: number }, 'a worker does not answer, and is killed');
      metrics.workerExits.inc({ reason: 'hang' });
    }
    if (stage !== 'serving') return;
    if (clock.now() - begun > STEADY_MS) this.#failures = 0;
    if (!worker.hangs) metrics.workerExits.inc({ reason: 'crash' });
    audit.admin('worker-end', { worker: number, how });
    const msg = 'a worker has ended; its open exchanges are lost, another one is started';
    log.error({ worker: number, pid, how }, msg);
    this.#fill();
  }

  /** Starts the workers that are missing, each after a pause. Those of an upgrade count once they serve. */
  #fill(): void {
    if (this.#closing !== undefined || !this.#isLive) return;
    for (let count = this.#missing; count > 0; count -= 1) void this.#replace();
  }

  /** Workers that are neither there nor about to be started; negative: there are too many. */
  get #missing(): number {
    return this.#deps.workers - this.#of('serving').length - this.#replacing;
  }

  async #replace(): Promise<void> {
    const { log, metrics } = this.#deps;
    this.#replacing += 1;
    try {
      const pause = BACK_OFF_MS.first * 2 ** Math.min(this.#failures, 20);
      this.#failures += 1;
      await delay(Math.min(pause, BACK_OFF_MS.most), undefined, { signal: this.#stop.signal });
      // An upgrade may have started enough of them.
      if (this.#missing < 0 || this.#closing !== undefined) return;
      const { worker } = await this.#startWorker();
      // It replaces nobody that ends before its last response has left, which may take days.
      if (this.#missing < -1) return void this.#drainWorker(worker, false);
      log.info('worker replaced');
      this.#keepLogs();
    } catch (error) {
      if (this.#closing !== undefined) return;
      metrics.workerExits.inc({ reason: 'start' });
      log.error({ reason: messageOf(error) }, 'a worker cannot be started');
    } finally {
      this.#replacing -= 1;
      this.#fill();
    }
  }

  async #activate(setup: AppSetup): Promise<Activation> {
    const isClosing = this.#closing !== undefined;
    // Workers that drain serve requests until the last one has left: after an upgrade beside others, which decide.
    const draining = this.#of('draining');
    const members = isClosing ? draining : [...this.#of('serving'), ...this.#of('opening')];
    const followers = isClosing ? [] : draining;
    // One that drains refuses once its last request has left. Killed, it would lose its last records and counts.
    const stays = (worker: RemoteWorker): boolean => this.#workers.get(worker) !== 'draining';
    const [activation, inUse] = await Promise.all([
      activateIn(members, setup, stays, followers),
      this.#versions.inUse(members),
    ]);
    // For workers that start later: those that serve have these versions.
    this.#setup = { ...setup, credentials: keepInUse(this.#setup.credentials, setup.credentials, inUse) };
    this.#heads.record(this.#workers.keys());
    return activation;
  }

  async #drain(): Promise<void> {
    this.#stop.abort();
    await Promise.all(
      Array.from(this.#workers, async ([worker, stage]) => {
        if (stage === 'serving') return this.#drainWorker(worker, true);
        if (stage !== 'draining') worker.kill();
        await worker.ended;
      }),
    );
    this.#isLive = false;
    await this.#deps.idleLogs.close();
  }

  async #drainWorker(worker: RemoteWorker, withDelay: boolean): Promise<void> {
    if (this.#workers.get(worker) === 'draining') {
      // The end of an upgrade and the shutdown can meet.
      await worker.ended;
      return;
    }
    this.#setStage(worker, 'draining');
    const { delay: delayMs, timeout } = this.#setup.config.drain;
    const reason = await worker.drain(withDelay, delayMs + timeout + CLOSE_MS);
    if (reason === undefined) return;
    this.#deps.log.warn({ worker: worker.number, reason }, 'a worker was not closed as it should be');
  }

  /** A worker that has ended is no longer there. */
  #setStage(worker: RemoteWorker, stage: Stage): void {
    if (!worker.hasEnded) this.#workers.set(worker, stage);
  }

  async #keepCounts(): Promise<void> {
    const { signal } = this.#stop;
    let pause = KEEP_MS;
    while (!signal.aborted) {
      await delay(pause, undefined, { ref: false, signal }).catch(ignoreAbort);
      const begun = this.#deps.clock.now();
      await this.observe('counts');
      if (this.#heads.due) this.#heads.record(this.#workers.keys());
      // Metrics of thousands of deployments take long to read.
      pause = Math.max(KEEP_MS, 100 * (this.#deps.clock.now() - begun));
    }
  }

  #keepLogs(): void {
    if (this.#closing !== undefined) return;
    void this.#deps.idleLogs.keep(() => this.#numbers);
  }

  get #numbers(): ReadonlySet<number> {
    return new Set(Array.from(this.#workers.keys(), ({ number }) => number));
  }

  #of(stage: Stage): RemoteWorker[] {
    return [...this.#workers].flatMap(([worker, its]) => (its === stage ? [worker] : []));
  }
}
