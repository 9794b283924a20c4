import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../base/error-code.ts';
import { ignoreAbort } from '../base/expected-errors.ts';
import type { Log } from '../base/log.ts';
import type { RegistrySnapshot } from '../metrics/merged-metrics.ts';
import type { BuildInfo, Metrics } from '../metrics/metrics.ts';
import { metricsRequest } from '../metrics/otlp-metrics.ts';
import { RetryLater } from '../receivers/connections.ts';
import { OtlpClient, SERVICE } from '../receivers/otlp.ts';
import type { MetricsExportOptions } from '../setup/metrics.ts';

/** The longest pause that a receiver can ask for, in milliseconds. */
const LONGEST_ASKED_MS = 300_000;
/** The longest time of the last export, in milliseconds: orchestrators wait only a few seconds longer than the drain takes. */
const LAST_MS = 5_000;

interface MetricsExportDeps {
  readonly build: BuildInfo;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Returns the current metrics of every process of the gateway. */
  readonly read: () => Promise<RegistrySnapshot>;
}

/**
 * Sends all metrics to a receiver of OTLP, at the start, at every interval, and at the end. A failed export is not
 * sent again: the next one has the same counters, further on.
 */
export class MetricsExport {
  readonly #options: MetricsExportOptions;
  readonly #deps: MetricsExportDeps;
  readonly #client: OtlpClient;
  readonly #ended = new AbortController();
  readonly #running: Promise<void>;
  #failing = false;

  constructor(options: MetricsExportOptions, deps: MetricsExportDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#client = new OtlpClient(options, 'rejectedDataPoints');
    this.#running = this.#run();
  }

  /** Sends the metrics a last time; an export under way is given up. Never rejects. */
  async close(): Promise<void> {
    this.#ended.abort();
    await this.#running;
    await this.#export(Math.min(this.#options.timeout, LAST_MS));
    await this.#client.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#ended;
    while (!signal.aborted) {
      const pause = await this.#export(this.#options.timeout, signal);
      await delay(pause, undefined, { ref: false, signal }).catch(ignoreAbort);
    }
  }

  /** Resolves to the pause before the next export. */
  async #export(timeout: number, ended?: AbortSignal): Promise<number> {
    const { interval } = this.#options;
    try {
      await this.#send(timeout, ended);
      this.#recover();
      return interval;
    } catch (error) {
      if (ended?.aborted !== true) this.#fail(error);
      return error instanceof RetryLater
        ? Math.max(interval, Math.min(error.after, LONGEST_ASKED_MS))
        : interval;
    }
  }

  async #send(timeout: number, ended: AbortSignal | undefined): Promise<void> {
    const { instance } = this.#options;
    const { build, read } = this.#deps;
    const resource = {
      'service.name': SERVICE,
      'service.version': build.version,
      'service.instance.id': instance,
    };
    const metrics = await read();
    const times = { started: performance.timeOrigin, now: Date.now() };
    const body = JSON.stringify(metricsRequest({ scope: SERVICE, resource, ...times, metrics }));
    const late = AbortSignal.timeout(timeout);
    const signal = ended === undefined ? late : AbortSignal.any([ended, late]);
    const rejected = await this.#client.send(body, signal).catch((error) => {
      throw late.aborted ? new Error(`not confirmed within ${timeout} ms`, { cause: error }) : error;
    });
    if (rejected > 0) throw new Error(`${rejected} data points refused`);
  }

  #fail(error: unknown): void {
    const { log, metrics } = this.#deps;
    metrics.metricsExportFailures.inc();
    if (this.#failing) return;
    this.#failing = true;
    log.warn({ reason: messageOf(error) }, 'metrics could not be sent; trying again at each interval');
  }

  #recover(): void {
    if (!this.#failing) return;
    this.#failing = false;
    this.#deps.log.info('metrics are sent again');
  }
}
