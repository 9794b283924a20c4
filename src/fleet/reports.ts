import { setAuditCounts } from '../app/gauges.ts';
import type { FormerWorkers, WantedMetrics } from '../app/worker.ts';
import { auditLines } from '../app/worker-state.ts';
import type { Audit } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import { isolate } from '../base/report-error.ts';
import type { AuditLines } from '../control/snapshot.ts';
import { type ErrorState, mergeErrors } from '../control/state.ts';
import type { AuditLine } from '../control/view.ts';
import { ClientRefusals } from '../gateway/error-log.ts';
import type { MergedMetrics } from '../metrics/merged-metrics.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { RemoteWorker } from './remote-worker.ts';

/** For so long after the console has asked for audit lines, workers send them, in milliseconds. */
const LINES_MS = 10_000;
/** Number of audit lines that are kept. */
const LINES_KEPT = 500;

interface ReportsDeps {
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
  /** Of workers that have ended. */
  #errors: readonly ErrorState[] = [];
  #linesWantedAt = Number.NEGATIVE_INFINITY;
  #ownLinesFrom = 0;

  constructor(deps: ReportsDeps) {
    this.#deps = deps;
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
    setAuditCounts(metrics, audit);
    const withLines = clock.now() - this.#linesWantedAt < LINES_MS;
    if (withLines) {
      const { lines, position } = auditLines(audit, this.#ownLinesFrom);
      this.#ownLinesFrom = position;
      this.#lines.add(lines);
    }
    await Promise.all(workers.map((worker) => worker.update({ metrics: names, withState, withLines })));
    for (const worker of workers) this.#collect(worker);
  }

  /** Keeps the counts and errors of a worker that has ended. */
  ended(worker: RemoteWorker): void {
    this.#collect(worker);
    this.#deps.merged.ended(worker.number);
    this.#errors = mergeErrors([...this.#errors, ...(worker.state?.errors ?? [])]);
  }

  /** The end of a worker must be noted whatever it reports. */
  #collect(worker: RemoteWorker): void {
    isolate(() => {
      for (const { metrics, lines, refusals } of worker.takeReports()) {
        this.#deps.merged.set(worker.number, metrics);
        this.#lines.add(lines);
        this.#refusals.keep(refusals);
      }
    });
  }

  /** What workers knew that have ended, or are about to. */
  former(leaving: readonly RemoteWorker[]): FormerWorkers {
    return {
      errors: [...this.#errors, ...leaving.flatMap(({ state }) => state?.errors ?? [])],
      refusals: (client) => this.#refusals.of(client),
    };
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
