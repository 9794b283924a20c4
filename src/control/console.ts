import { Router } from 'express';
import type { Admission } from './admission.ts';
import { AuditApi, type AuditApiOptions } from './audit-api.ts';
import { LiveStream } from './live-stream.ts';
import type { Pages } from './pages.ts';
import { Sampler } from './sampler.ts';
import type { ConsoleSource } from './snapshot.ts';
import { readTotals } from './totals.ts';

export interface ConsolePace {
  /** Intervals of the charts' points and of the stream's snapshots, in milliseconds. */
  readonly sampleMs: number;
  readonly tickMs: number;
}

export const CONSOLE_PACE: ConsolePace = { sampleMs: 5_000, tickMs: 1_000 };

export interface ConsoleOptions extends ConsolePace {
  readonly source: ConsoleSource;
  readonly pages: Pages;
  readonly admission: Admission;
  readonly audit: Omit<AuditApiOptions, 'onError'>;
  readonly onError: (error: unknown) => void;
}

/** Serves the console's page at `/` and its data under `/api/`. Read-only. */
export class Console {
  readonly router = Router();
  readonly #sampler: Sampler;
  readonly #stream: LiveStream;
  readonly #audit: AuditApi;

  constructor({ source, pages, admission, audit, sampleMs, tickMs, onError }: ConsoleOptions) {
    const sampler = new Sampler(() => readTotals(source.values, Date.now()), sampleMs, onError);
    const stream = new LiveStream({ source, sampler, tickMs, onError });
    this.#sampler = sampler;
    this.#stream = stream;
    this.#audit = new AuditApi({ ...audit, onError });
    const { router } = this;
    router.use('/assets', pages.assets);
    router.use(admission.router);
    router.get('/', admission.looks, (_req, res) => pages.sendConsole(res));
    router.use('/api', admission.reads, (_req, res, next) => {
      res.set('cache-control', 'no-store');
      next();
    });
    router.get('/api/snapshot', async (_req, res) => {
      res.json(await stream.snapshot());
    });
    router.get('/api/history', (_req, res) => {
      res.json(sampler.history());
    });
    router.get('/api/events', (_req, res) => stream.add(res));
    router.use('/api', this.#audit.router);
  }

  close(): void {
    this.#audit.close();
    this.#stream.close();
    this.#sampler.close();
  }
}
