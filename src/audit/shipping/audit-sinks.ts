import { extname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { inTime } from '../../base/clock.ts';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbort } from '../../base/expected-errors.ts';
import type { Log } from '../../base/log.ts';
import { ownEntry } from '../../base/maps.ts';
import { toPlain } from '../../base/plain-form.ts';
import type { Metrics } from '../../metrics/metrics.ts';
import type { Head } from '../seal.ts';
import { addStatus, endedStatus, NO_STATUS, type SinkStatus } from './follower.ts';
import type { SinkSetDeps } from './sink-set.ts';
import type { ThreadData, ThreadMessage, ThreadRequest } from './sink-thread.ts';

/** The thread has the extension of this file: .ts in a checkout, .js in the package. */
const THREAD = new URL(`./sink-thread${extname(import.meta.filename)}`, import.meta.url);
/** How long the rest of the logs may be sent when the gateway ends, and then the end of the thread, in milliseconds. */
const GRACE_MS = 5_000;
const END_MS = 2_000;
/** Pause before a thread that ended by itself is replaced, in milliseconds. */
const RESTART_MS = 5_000;
/** Memory of the thread, in MiB. A delivery of 1,000 large records has 40 MiB, and is there a few times. */
const MOST_MEMORY = 256;

interface AuditSinksDeps extends Pick<SinkSetDeps, 'recordLoss'> {
  readonly log: Log;
}

/**
 * Sends the logs of this replica to its sinks, in a thread that reads the files. So neither requests nor their records
 * wait for a sink, and a sink that hangs costs no memory here.
 */
export class AuditSinks {
  readonly #data: ThreadData;
  readonly #log: Log;
  readonly #recordLoss: SinkSetDeps['recordLoss'];
  #thread: Worker;
  #ended: Promise<unknown>;
  #latest: Readonly<Record<string, SinkStatus>> = {};
  /** Counts of threads that ended by themselves. */
  readonly #before = new Map<string, SinkStatus>();
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;

  constructor(data: ThreadData, { log, recordLoss }: AuditSinksDeps) {
    this.#data = data;
    this.#log = log;
    this.#recordLoss = recordLoss;
    [this.#thread, this.#ended] = this.#start();
  }

  /** Which sinks fail, why, and whether the receiver refuses for good. */
  get states(): { readonly name: string; readonly failing: string | null; readonly rejected: boolean }[] {
    return this.#data.sinks.map(({ name }) => {
      const { failing = null, rejected = false } = ownEntry(this.#latest, name) ?? {};
      return { name, failing, rejected };
    });
  }

  /** Sets the metrics of all sinks. */
  observe(metrics: Metrics): void {
    const { auditSinkLagSeconds, auditSinkLagRecords } = metrics;
    const { auditSinkDelivered, auditSinkFailures, auditSinkSkipped } = metrics;
    for (const counter of [auditSinkDelivered, auditSinkFailures, auditSinkSkipped]) counter.reset();
    for (const { name: sink, kind } of this.#data.sinks) {
      const latest = ownEntry(this.#latest, sink) ?? NO_STATUS;
      const { since, behind, delivered, failures, skipped, rejected } = addStatus(
        latest,
        this.#before.get(sink) ?? NO_STATUS,
      );
      // Counted here, so that the lag of a thread that hangs grows, too.
      const lag = since === undefined ? 0 : Math.max(0, Date.now() - since) / 1000;
      auditSinkLagSeconds.set({ sink }, lag);
      auditSinkLagRecords.set({ sink }, behind);
      if (kind === 'witness') metrics.auditWitnessConflict.set({}, rejected ? 1 : 0);
      auditSinkDelivered.inc({ sink }, delivered);
      auditSinkFailures.inc({ sink }, failures);
      auditSinkSkipped.inc({ sink }, skipped);
    }
  }

  /** Sends what is left for some seconds, and ends the thread. The rest is sent after the next start. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    this.#post({ kind: 'finish', graceMs: GRACE_MS });
    await inTime(this.#ended, GRACE_MS + END_MS);
    await this.#thread.terminate();
    const waiting = Object.entries(this.#latest).filter(([, { behind }]) => behind > 0);
    for (const [sink, { behind }] of waiting) {
      this.#log.warn({ sink, records: behind }, 'audit records are sent to the sink after the next start');
    }
  }

  #start(): [Worker, Promise<unknown>] {
    const resourceLimits = { maxOldGenerationSizeMb: MOST_MEMORY };
    const thread = new Worker(THREAD, { workerData: toPlain(this.#data), resourceLimits });
    thread.on('message', (message: ThreadMessage) => this.#onMessage(message));
    thread.on('error', (error) => {
      this.#log.error({ reason: messageOf(error) }, 'thread of the audit sinks failed; it starts again');
    });
    const ended = new Promise((resolve) => {
      thread.once('exit', resolve);
    });
    void ended.then(() => this.#restart());
    return [thread, ended];
  }

  async #restart(): Promise<void> {
    const { signal } = this.#closing;
    if (signal.aborted) return;
    // The status stays until the next thread reports its own; otherwise the lag would be 0 between threads.
    const entries = this.#data.sinks.map(({ name }) => {
      const latest = ownEntry(this.#latest, name) ?? NO_STATUS;
      this.#before.set(name, addStatus(this.#before.get(name) ?? NO_STATUS, endedStatus(latest)));
      const { behind, since = Date.now(), rejected } = latest;
      return [name, { ...NO_STATUS, failing: 'its thread failed', behind, since, rejected }] as const;
    });
    this.#latest = Object.fromEntries(entries);
    await delay(RESTART_MS, undefined, { signal }).catch(ignoreAbort);
    if (!signal.aborted) [this.#thread, this.#ended] = this.#start();
  }

  #onMessage(message: ThreadMessage): void {
    if (message.kind === 'log') this.#log[message.level](message.fields, message.msg);
    else if (message.kind === 'status') this.#latest = message.sinks;
    else void this.#record(message.lost);
  }

  async #record(lost: Head): Promise<void> {
    const isRecorded = await this.#recordLoss(lost);
    this.#post({ kind: 'recorded', replica: lost.replica, isRecorded });
  }

  #post(request: ThreadRequest): void {
    this.#thread.postMessage(request);
  }
}
