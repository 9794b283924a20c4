import { setAuditCounts } from '../app/gauges.ts';
import type { WantedMetrics } from '../app/worker.ts';
import { auditLines } from '../app/worker-state.ts';
import type { Audit } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import { isolate } from '../base/report-error.ts';
import type { ClientUse, LimitUseView, RefusalView } from '../control/client-view.ts';
import type { MergedMetrics } from '../control/merged-metrics.ts';
import type { AuditLines } from '../control/snapshot.ts';
import { addFormer, type FormerState, NO_FORMER } from '../control/state.ts';
import type { AuditLine } from '../control/view.ts';
import { ClientRefusals } from '../gateway/error-log.ts';
import { KeysSeen } from '../gateway/keys-seen.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { RemoteWorker } from './remote-worker.ts';

/** Time for which workers send audit lines after the console has asked for them, in milliseconds. */
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

/** The reports of the workers, merged with the state of the primary: metrics, readiness, audit lines. */
export class Reports {
  readonly #deps: ReportsDeps;
  readonly #lines = new RecentLines();
  /** Of workers that have drained. */
  readonly #refusals = new ClientRefusals();
  /** Of all workers, as they reported last. */
  readonly #keysSeen = new KeysSeen();
  /** Of workers that have ended. */
  #former = NO_FORMER;
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

  /** Updates the metrics from what these workers report, as far as they respond in time. `running`: count of workers. */
  async observe(workers: readonly RemoteWorker[], running: number, names: WantedMetrics): Promise<void> {
    const { metrics, audit, clock } = this.#deps;
    metrics.workers.set(running);
    setAuditCounts(metrics, audit);
    const withLines = clock.now() - this.#linesWantedAt < LINES_MS;
    if (withLines) {
      const { lines, position } = auditLines(audit, this.#ownLinesFrom);
      this.#ownLinesFrom = position;
      this.#lines.add(lines);
    }
    await Promise.all(
      workers.map((worker) => worker.update({ metrics: names, withState: false, withLines })),
    );
    for (const worker of workers) this.#collect(worker);
  }

  /** Keeps the counts and errors of a worker that has ended. */
  ended(worker: RemoteWorker): void {
    this.#collect(worker);
    this.#deps.merged.ended(worker.number);
    this.#former = this.former([worker]);
  }

  /** The end of a worker must be noted whatever it reports. */
  #collect(worker: RemoteWorker): void {
    isolate(() => {
      for (const { metrics, lines, refusals, keysSeen } of worker.takeReports()) {
        this.#deps.merged.set(worker.number, metrics);
        this.#lines.add(lines);
        this.#refusals.keep(refusals);
        this.#keysSeen.keep(keysSeen);
      }
    });
  }

  /** Errors and audit counts of workers that have ended, or are about to. */
  former(leaving: readonly RemoteWorker[]): FormerState {
    return addFormer(
      this.#former,
      leaving.flatMap(({ state }) => state ?? []),
    );
  }

  /** The use of a client at all workers that respond in time, and at those that have ended. */
  async clientUse(workers: readonly RemoteWorker[], client: string): Promise<ClientUse> {
    const asked = await Promise.allSettled(workers.map(({ calls }) => calls.clientUse(client)));
    const uses = asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    const former = { limits: null, refusals: this.#refusals.of(client), keys: this.#keysSeen.of(client) };
    return mergeClientUse([...uses, former]);
  }
}

/** Merges what processes know of a client. Their limits are shared, so the one that knows of the most use is right. */
function mergeClientUse(uses: readonly ClientUse[]): ClientUse {
  const limits = uses.flatMap((use) => use.limits ?? []);
  const byKind = Map.groupBy(
    uses.flatMap(({ refusals }) => refusals),
    ({ code, isServed }) => `${code} ${isServed}`,
  );
  return {
    limits: limits.length === 0 ? null : limits.reduce(mostUsed),
    refusals: Array.from(byKind.values(), added).sort((a, b) => b.lastAt - a.lastAt),
    keys: uses.flatMap(({ keys }) => keys),
  };
}

function mostUsed(a: LimitUseView, b: LimitUseView): LimitUseView {
  return {
    rate: a.rate && b.rate && { ...a.rate, left: Math.min(a.rate.left, b.rate.left) },
    concurrent: a.concurrent &&
      b.concurrent && {
        ...a.concurrent,
        inFlight: Math.max(a.concurrent.inFlight, b.concurrent.inFlight),
      },
    daily: a.daily && b.daily && { ...a.daily, used: Math.max(a.daily.used, b.daily.used) },
  };
}

function added(same: readonly RefusalView[]): RefusalView {
  const last = same.reduce((a, b) => (b.lastAt > a.lastAt ? b : a));
  return { ...last, count: same.reduce((sum, { count }) => sum + count, 0) };
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
