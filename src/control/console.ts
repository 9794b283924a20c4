import { type Request, type Response, Router } from 'express';
import type { Admission } from './admission.ts';
import { AuditApi, type AuditApiOptions } from './audit-api.ts';
import type { Histories } from './history.ts';
import { LiveStream } from './live-stream.ts';
import type { Pages } from './pages.ts';
import { sendProblem } from './problem.ts';
import { Sampler } from './sampler.ts';
import { type ConsoleSource, takeDetail } from './snapshot.ts';
import { readTotals } from './totals.ts';
import { RANGES } from './view.ts';

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
    router.get('/api/history', (req, res) => sendHistory(req, res, sampler.histories));
    router.get('/api/deployments/:name', async (req, res) => {
      const detail = await takeDetail(source, req.params.name);
      if (detail === undefined) sendProblem(res, 404, 'The gateway has no deployment of this name.');
      else res.json(detail);
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

/** The history of one deployment; without its name, the sparklines of all. */
function sendHistory({ query }: Request, res: Response, histories: Histories): void {
  const { deployment, range = '15m' } = query;
  const known = RANGES.find((each) => each === range);
  if (known === undefined) sendProblem(res, 400, `range must be one of ${RANGES.join(', ')}.`);
  else if (deployment === undefined) res.json(histories.sparklines());
  else if (typeof deployment === 'string') res.json(histories.read(deployment, known));
  else sendProblem(res, 400, 'deployment must be given once.');
}
