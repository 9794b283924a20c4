import type { ServerResponse } from 'node:http';
import { type Request, type Response, Router } from 'express';
import { errorKinds } from '../base/errors.ts';
import type { OperatorView } from './action-view.ts';
import { type Admission, atOnce, type Caller, callerOf } from './admission.ts';
import { AuditApi, type AuditApiOptions } from './audit-api.ts';
import { sendProblem } from './control-error.ts';
import { type Histories, Sampler } from './history.ts';
import { certificatesOf, takeMap } from './map.ts';
import type { Pages } from './pages.ts';
import { isOfSameHolder } from './sessions.ts';
import { type ConsoleSource, takeDetail, takeSnapshot } from './snapshot.ts';
import { readTotals } from './totals.ts';
import { type ErrorKindView, RANGES, type Tick } from './view.ts';

export interface ConsolePace {
  /** Intervals of the charts' points and of the stream's snapshots, in milliseconds. */
  readonly sampleMs: number;
  readonly tickMs: number;
}

export const CONSOLE_PACE: ConsolePace = { sampleMs: 5_000, tickMs: 1_000 };

const ERRORS = errorKinds().map(
  ([code, { status, title, cause, remedy }]): ErrorKindView => ({ code, status, title, cause, remedy }),
);

interface ConsoleOptions extends ConsolePace {
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
    router.get('/', admission.requireLogin, (_req, res) => pages.sendConsole(res));
    router.use('/api', admission.requireRead);
    const view = atOnce(VIEWS, 'views');
    router.get('/api/snapshot', view, async (_req, res) => {
      res.json(await takeSnapshot(source, sampler));
    });
    router.get('/api/history', view, (req, res) => sendHistory(req, res, sampler.histories));
    router.get<{ name: string }>('/api/deployments/:name', view, async (req, res) => {
      const detail = await takeDetail(source, req.params.name);
      if (detail === undefined) sendProblem(res, 404, 'The gateway has no deployment of this name.');
      else res.json(detail);
    });
    router.get('/api/map', view, async (req, res) => sendMap(req, res, source, sampler));
    router.get('/api/certificates', view, async (_req, res) => {
      res.json(certificatesOf(await source.state(), Date.now()));
    });
    router.get('/api/errors', (_req, res) => {
      res.json(ERRORS);
    });
    router.get('/api/events', (_req, res) => stream.add(res, callerOf(res)));
    router.get('/api/operator', (_req, res) => {
      const caller = callerOf(res);
      const view = { name: caller?.operator?.name ?? null, roles: [...(caller?.roles ?? [])] };
      res.json(view satisfies OperatorView);
    });
    router.use(RECORDS, admission.requireAuditor);
    router.use('/api', this.#audit.router);
  }

  close(): void {
    this.#audit.close();
    this.#stream.close();
    this.#sampler.close();
  }
}

/** Maximum number of unfinished responses with data of the console: more than all viewers ask for together. */
const VIEWS = 128;

/** Paths of the records of the audit log. */
const RECORDS = ['/api/audit', '/api/requests'];

/** The history of one deployment; without its name, the sparklines of all. */
function sendHistory({ query }: Request, res: Response, histories: Histories): void {
  const { deployment, range = '15m' } = query;
  const known = RANGES.find((each) => each === range);
  if (known === undefined) sendProblem(res, 400, `range must be one of ${RANGES.join(', ')}.`);
  else if (deployment === undefined) res.json(histories.sparklines());
  else if (typeof deployment === 'string') res.json(histories.read(deployment, known));
  else sendProblem(res, 400, 'deployment must be given once.');
}

/** The ways of requests; only those of one client or deployment, if the query names them. */
async function sendMap(
  { query }: Request,
  res: Response,
  source: ConsoleSource,
  sampler: Sampler,
): Promise<void> {
  const { client = '', deployment = '' } = query;
  if (typeof client !== 'string' || typeof deployment !== 'string') {
    sendProblem(res, 400, 'client and deployment must be given once.');
    return;
  }
  const { deployments } = await source.state();
  const names = deployments.map(({ name }) => name);
  res.json(await takeMap(sampler, source.rules(), names, { client, deployment }));
}

/** Maximum number of open event streams, and of those of one person or token: nobody keeps the others out. */
const VIEWERS = 50;
const VIEWERS_OF_HOLDER = 25;
/** Maximum number of unsent bytes for one viewer. */
const WAITING = 2 ** 20;
/** Maximum number of audit lines in one tick; 10,000 lines a minute still fit. */
const AUDIT_LINES = 200;

interface LiveStreamOptions extends Pick<ConsoleOptions, 'source' | 'tickMs' | 'onError'> {
  readonly sampler: Sampler;
}

/** Server-sent events for every open console. One timer serves all; it stops when no console is open. */
class LiveStream {
  readonly #options: LiveStreamOptions;
  /** Undefined: no token is required. */
  readonly #viewers = new Map<ServerResponse, Caller | undefined>();
  #timer: NodeJS.Timeout | undefined;
  #ticking = false;
  #auditUntil = 0;

  constructor(options: LiveStreamOptions) {
    this.#options = options;
  }

  /** Starts the event stream, or responds 503 when too many are open. */
  add(res: ServerResponse, caller: Caller | undefined): void {
    if (this.#viewers.size >= VIEWERS || this.#countOf(caller) >= VIEWERS_OF_HOLDER) {
      res.writeHead(503, { 'content-type': 'text/plain', 'retry-after': '30' });
      res.end('Too many consoles are open. Close one.\n');
      return;
    }
    // nginx would keep the events until they fill a buffer.
    res.writeHead(200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
    if (this.#viewers.size === 0) this.#start();
    res.write(event('audit', seesRecords(caller) ? this.#auditBefore() : []));
    this.#viewers.set(res, caller);
    res.on('close', () => {
      this.#viewers.delete(res);
      if (this.#viewers.size === 0) this.#stop();
    });
    void this.#tick();
  }

  /** Open streams of the person or token. */
  #countOf(caller: Caller | undefined): number {
    if (caller === undefined) return 0;
    return [...this.#viewers.values()].filter((of) => of !== undefined && isOfSameHolder(of, caller)).length;
  }

  close(): void {
    for (const viewer of this.#viewers.keys()) this.#end(viewer);
    this.#stop();
  }

  /** A tick that is under way must not write to it any more. */
  #end(viewer: ServerResponse): void {
    this.#viewers.delete(viewer);
    viewer.end();
  }

  #start(): void {
    const { source, tickMs } = this.#options;
    this.#auditUntil = source.auditLines(0).position;
    this.#timer = setInterval(() => void this.#tick(), tickMs).unref();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Returns the audit lines that earlier ticks have sent. */
  #auditBefore() {
    const { lines, position } = this.#options.source.auditLines(0);
    const sent = lines.length - (position - this.#auditUntil);
    return lines.slice(Math.max(0, sent - AUDIT_LINES), Math.max(0, sent));
  }

  async #tick(): Promise<void> {
    if (this.#ticking) return;
    this.#ticking = true;
    try {
      const tick = await this.#nextTick();
      const whole = event('tick', tick);
      let withoutRecords: string | undefined;
      for (const [viewer, caller] of this.#viewers) {
        // The page finds out that its session has ended when it connects again.
        if (caller?.isAdmitted() === false) this.#end(viewer);
        // A viewer that reconnects gets everything again.
        else if (viewer.writableLength > WAITING) viewer.destroy();
        else if (seesRecords(caller)) viewer.write(whole);
        else {
          withoutRecords ??= event('tick', { ...tick, audit: [] });
          viewer.write(withoutRecords);
        }
      }
    } catch (error) {
      this.#options.onError(error);
    } finally {
      this.#ticking = false;
    }
  }

  async #nextTick(): Promise<Tick> {
    const { source, sampler } = this.#options;
    const snapshot = await takeSnapshot(source, sampler);
    const audit = source.auditLines(this.#auditUntil);
    this.#auditUntil = audit.position;
    return { snapshot, audit: audit.lines.slice(-AUDIT_LINES) };
  }
}

function seesRecords(caller: Caller | undefined): boolean {
  return caller === undefined || caller.roles.has('auditor');
}

function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
