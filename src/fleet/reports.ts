import { auditLines, auditView } from '../app/console-audit.ts';
import { observeAudit, withCheck } from '../app/health.ts';
import type { Audit } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import type { ClientUse } from '../control/client-view.ts';
import { mergeAudit, mergeClientUse, mergeReports, type PlaneReport } from '../control/merge.ts';
import { type Check, conditionWith, simpleCheck } from '../control/readiness.ts';
import type { AuditLines } from '../control/snapshot.ts';
import type { AuditLine } from '../control/view.ts';
import { ClientRefusals } from '../gateway/error-log.ts';
import type { MergedMetrics } from '../metrics/merged-metrics.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { WantedMetrics, WorkerReport } from './protocol.ts';
import type { RemoteWorker } from './remote-worker.ts';

/** For so long after the console has asked for audit lines, workers send them, in milliseconds. */
const LINES_MS = 10_000;
/** Number of audit lines that are kept. */
const LINES_KEPT = 500;

export interface ReportsDeps {
  readonly clock: Clock;
  /** The log of the primary. */
  readonly audit: Audit;
  readonly metrics: Metrics;
  readonly merged: MergedMetrics;
}

/** What the workers tell of themselves, put together with what the primary knows: metrics, readiness, audit lines. */
export class Reports {
  readonly #deps: ReportsDeps;
  readonly #lines = new RecentLines();
  /** Of workers that have drained. */
  readonly #refusals = new ClientRefusals();
  #linesWantedAt = Number.NEGATIVE_INFINITY;
  #ownLinesFrom = 0;

  constructor(deps: ReportsDeps) {
    this.#deps = deps;
  }

  /** A worker has sent a report. */
  add(worker: number, { metrics, lines, refusals }: WorkerReport): void {
    this.#deps.merged.set(worker, metrics);
    this.#lines.add(lines);
    this.#refusals.keep(refusals);
  }

  /** The lines after this position of the primary and the workers, which send theirs from now on for a while. */
  auditLines(position: number): AuditLines {
    this.#linesWantedAt = this.#deps.clock.now();
    return this.#lines.since(position);
  }

  /** Asks these workers for a report, and resolves when they have sent it or failed to. `serving`: so many serve. */
  async update(
    workers: readonly RemoteWorker[],
    serving: number,
    names: WantedMetrics,
    withState: boolean,
  ): Promise<void> {
    const { metrics, audit, clock } = this.#deps;
    metrics.workers.set(serving);
    observeAudit(metrics, audit);
    const withLines = clock.now() - this.#linesWantedAt < LINES_MS;
    if (withLines) {
      const { lines, position } = auditLines(audit, this.#ownLinesFrom);
      this.#ownLinesFrom = position;
      this.#lines.add(lines);
    }
    await Promise.all(workers.map((worker) => worker.update({ metrics: names, withState, withLines })));
  }

  /**
   * Merges the limits and refusals of a client from these workers, and the refusals of those that have drained; omits a
   * worker that does not respond in time.
   */
  async clientUse(workers: readonly RemoteWorker[], client: string): Promise<ClientUse> {
    const asked = await Promise.allSettled(workers.map((worker) => worker.clientUse(client)));
    const uses = asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    return mergeClientUse([...uses, { limits: null, refusals: this.#refusals.of(client) }]);
  }

  /** Merges the latest states of these workers. `serving`: so many serve; `wanted`: and so many should. */
  merge(workers: readonly RemoteWorker[], serving: number, wanted: number): PlaneReport {
    const reports = workers.flatMap(({ number, state }) =>
      state === undefined ? [] : [{ worker: number, ...state }],
    );
    const merged = mergeReports(reports);
    const { audit } = this.#deps;
    const readiness = withCheck(merged.readiness, workersCheck(serving, wanted, audit));
    const condition = conditionWith(readiness, merged.condition.deployments);
    const views = [merged.audit, audit.enabled ? auditView(audit) : null].flatMap((view) => view ?? []);
    return { ...merged, readiness, condition, audit: mergeAudit(views) };
  }
}

/** The latest audit lines of several processes, in the order of their arrival. */
export class RecentLines {
  #lines: AuditLine[] = [];
  #count = 0;

  add(lines: readonly AuditLine[]): void {
    this.#count += lines.length;
    this.#lines = [...this.#lines, ...lines].slice(-LINES_KEPT);
  }

  /** Returns the lines after this position as far as they are kept, oldest first, and the position after them. */
  since(position: number): AuditLines {
    const missing = Math.max(0, this.#count - position);
    return { lines: missing === 0 ? [] : this.#lines.slice(-missing), position: this.#count };
  }
}

/** Returns the check of the workers, and of the primary's own audit log, in the readiness. */
function workersCheck(serving: number, wanted: number, { failing, retentionHeld, sink }: Audit): Check {
  const missing = `${serving} of ${wanted} workers serve; the others are being started`;
  const check = simpleCheck('workers', serving < wanted ? missing : undefined);
  const errors = [
    ...check.errors,
    ...(failing === undefined ? [] : [`the primary's audit log cannot be written: ${failing}`]),
    ...(retentionHeld === undefined ? [] : [`the primary: ${retentionHeld}`]),
    ...(sink?.failing === undefined ? [] : [`the primary cannot reach the audit stream: ${sink.failing}`]),
  ];
  return { ...check, ok: errors.length === 0, errors };
}
