import type { Audit } from '../audit/audit.ts';
import { formatHead } from '../audit/seal.ts';
import type { Clock } from '../base/clock.ts';
import type { RemoteWorker } from './remote-worker.ts';

/** Interval in which the heads of running workers are recorded, in milliseconds. */
const EVERY_MS = 300_000;

/**
 * Records in the log of the primary where the logs of workers end. Otherwise nothing would show that one of them was
 * removed or cut off.
 */
export class WorkerHeads {
  readonly #audit: Audit;
  readonly #clock: Clock;
  #recorded = '';
  #recordedAt = Number.NEGATIVE_INFINITY;

  constructor(audit: Audit, clock: Clock) {
    this.#audit = audit;
    this.#clock = clock;
  }

  get due(): boolean {
    return this.#clock.now() - this.#recordedAt >= EVERY_MS;
  }

  /** Records the heads of these workers, unless they were the last ones that were. */
  record(workers: Iterable<RemoteWorker>): void {
    const heads = headsOf(workers);
    this.#recordedAt = this.#clock.now();
    if (heads.join() === this.#recorded) return;
    this.#recorded = heads.join();
    this.#audit.admin('worker-heads', { heads });
  }

  recordEnd(worker: RemoteWorker): void {
    const heads = headsOf([worker]);
    if (heads.length > 0) this.#audit.admin('worker-heads', { heads, ended: true });
  }
}

function headsOf(workers: Iterable<RemoteWorker>): string[] {
  return Array.from(workers, ({ auditHead }) => auditHead).flatMap((head) =>
    head ? [formatHead(head)] : [],
  );
}
