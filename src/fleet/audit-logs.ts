import type { Audit } from '../audit/audit.ts';
import { formatHead } from '../audit/seal.ts';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { reportError } from '../base/report-error.ts';
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

interface IdleLogsDeps {
  readonly log: Log;
  /** Numbers of the workers that have an audit log. */
  readonly list: () => Promise<readonly number[]>;
  /** Opens the log of a worker. */
  readonly open: (number: number) => Promise<Audit>;
}

/**
 * Keeps the audit logs of workers that do not run open, so that their old segments are removed. The steps follow one
 * another.
 */
export class IdleLogs {
  readonly #deps: IdleLogsDeps;
  readonly #open = new Map<number, Audit>();
  #last: Promise<void> = Promise.resolve();

  constructor(deps: IdleLogsDeps) {
    this.#deps = deps;
  }

  /** Opens the logs of all workers but these. Never rejects: a log that cannot be opened is reported and left alone. */
  keep(running: () => ReadonlySet<number>): Promise<void> {
    return this.#then(async () => {
      for (const number of await this.#deps.list()) {
        if (!running().has(number) && !this.#open.has(number)) await this.#openLog(number);
      }
    });
  }

  /** Closes the log of a worker that is about to start. Never rejects. */
  release(number: number): Promise<void> {
    return this.#then(async () => {
      await this.#open.get(number)?.close();
      this.#open.delete(number);
    });
  }

  /** Closes all of them. Never rejects. */
  close(): Promise<void> {
    return this.#then(async () => {
      await Promise.all(Array.from(this.#open.values(), (audit) => audit.close()));
      this.#open.clear();
    });
  }

  async #openLog(number: number): Promise<void> {
    try {
      this.#open.set(number, await this.#deps.open(number));
    } catch (error) {
      const msg = 'the audit log of a worker that does not run cannot be opened; it is left as it is';
      this.#deps.log.warn({ reason: String(error), worker: number }, msg);
    }
  }

  #then(step: () => Promise<void>): Promise<void> {
    this.#last = this.#last.then(step).catch(reportError);
    return this.#last;
  }
}

/** The smallest number of a worker, from 1 on, that is not taken. */
export function freeNumber(taken: ReadonlySet<number>): number {
  let number = 1;
  while (taken.has(number)) number += 1;
  return number;
}
