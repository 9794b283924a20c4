import type { Audit } from '../audit/audit.ts';
import type { Log } from '../base/log.ts';
import { reportError } from '../base/report-error.ts';

export interface IdleLogsDeps {
  readonly log: Log;
  /** Numbers of the workers that have an audit log. */
  readonly list: () => Promise<readonly number[]>;
  /** Opens the log of a worker. */
  readonly open: (number: number) => Promise<Audit>;
}

/**
 * Keeps the audit logs of workers that do not run open, so that their old segments are removed, and records that are
 * not in the stream yet are sent. The steps follow one another.
 */
export class IdleLogs {
  readonly #deps: IdleLogsDeps;
  readonly #open = new Map<number, Audit>();
  #last: Promise<void> = Promise.resolve();

  constructor(deps: IdleLogsDeps) {
    this.#deps = deps;
  }

  /** Opens the logs of all workers but these. Never rejects: a log that cannot be opened is told and left alone. */
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
