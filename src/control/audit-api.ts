import { hash } from 'node:crypto';
import { once } from 'node:events';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import { cursorOf } from '../audit/reader/newest-first.ts';
import { csvLine, type Found, type Query } from '../audit/reader/query.ts';
import {
  type PageTask,
  runInThread,
  searchInThread,
  type ThreadPage,
  type ThreadScope,
  type ThreadUsage,
  type UsageTask,
} from '../audit/reader/search-thread.ts';
import { type IdentifierLists, usageCsv, usageNotes } from '../audit/reader/usage.ts';
import type { AdminDetails } from '../audit/record.ts';
import { addressOf } from '../base/client-address.ts';
import { monotonicClock } from '../base/clock.ts';
import { Throttle } from '../base/throttle.ts';
import { capitalized } from '../base/units.ts';
import { callerOf, Slots } from './admission.ts';
import {
  type PageRequest,
  ParameterError,
  readExport,
  readRequest,
  readSearch,
  readUsage,
} from './audit-query.ts';
import type { RequestRow, SearchView, UsageView } from './audit-view.ts';
import { clientGone } from './client-gone.ts';
import { ControlError, sendControlError, sendProblem } from './control-error.ts';
import { operatorDetails } from './operators.ts';

/** Time in which the same query does not count as a new one, in milliseconds. */
const KNOWN_MS = 600_000;
/** Queries that are remembered; the oldest is forgotten. */
const MOST_KNOWN = 1_000;

type Inquiry = 'audit-search' | 'audit-export' | 'audit-usage';

/** The audit log that the control plane searches. */
export interface AuditLogAccess extends Omit<ThreadScope, 'query' | 'parameters'> {
  /** A criterion of a search as the log has it: as it is, or its pseudonym. */
  readonly recorded: (criterion: string) => string;
  /** By the configuration in use: parameters with their values in new records, and those that are lists of identifiers. */
  readonly parameters: () => readonly string[];
  readonly lists: () => IdentifierLists;
  /** Records a search, an export or a report of usage; resolves to false if the audit log cannot be written. */
  readonly record: (event: Inquiry, details: AdminDetails) => Promise<boolean>;
}

export interface AuditBounds {
  /** Searches and exports at the same time. */
  readonly searches: number;
  readonly exports: number;
  /** Time after which a search that has not come to an end is given up, in milliseconds. */
  readonly searchMs: number;
  /** Results and time of an export, in milliseconds. */
  readonly exportResults: number;
  readonly exportMs: number;
  /** Time in which the client of an export has to take a piece of it, in milliseconds. */
  readonly stalledMs: number;
}

export const AUDIT_BOUNDS: AuditBounds = {
  searches: 2,
  exports: 1,
  searchMs: 60_000,
  exportResults: 1_000_000,
  exportMs: 600_000,
  stalledMs: 30_000,
};

export interface AuditApiOptions {
  /** Undefined: no audit log is configured. */
  readonly log: AuditLogAccess | undefined;
  /** Template of the address of a trace; undefined: there is none. */
  readonly traceUrl: string | undefined;
  readonly bounds?: AuditBounds;
  readonly onError: (error: unknown) => void;
}

const NO_LOG = 'This gateway has no audit log. Add an audit section to its configuration.';
const EVENTS = { page: 'audit-search', usage: 'audit-usage' } as const;
const TOO_SLOW = {
  page: 'The search found no place to stop in time, since the segments of the log are large. Name a replica, or use digest-gateway audit search.',
  usage:
    'The usage was not counted in time, since the log is large. Name a shorter time range, or use digest-gateway audit usage.',
} as const;
/** Rows of a report of usage for the console; CSV has all of them. */
const MAX_ROWS = 1_000;
const TYPES = { csv: 'text/csv; charset=utf-8', jsonl: 'application/jsonl; charset=utf-8' };
/** Paths under `/api` whose responses take longer than others. They have time limits of their own. */
export const LONG_PATHS = /^\/api\/(?:audit|requests)\//;

/** Serves the search in the audit log: `/audit/search`, `/audit/export`, `/audit/usage` and `/requests/ID`. */
export class AuditApi {
  readonly router = Router();
  readonly #options: AuditApiOptions;
  readonly #bounds: AuditBounds;
  readonly #searches: Slots;
  readonly #exports: Slots;
  /** The queries that are recorded, by their hash: a page that repeats its search must not flood the audit log. */
  readonly #recorded = new Throttle(monotonicClock, MOST_KNOWN, KNOWN_MS);
  readonly #closing = new AbortController();

  constructor(options: AuditApiOptions) {
    this.#options = options;
    this.#bounds = options.bounds ?? AUDIT_BOUNDS;
    this.#searches = new Slots(this.#bounds.searches);
    this.#exports = new Slots(this.#bounds.exports);
    this.router.get(
      '/audit/search',
      this.#handler((req, res, log) => this.#sendPage(req, res, log, readSearch(req.query))),
    );
    this.router.get(
      '/audit/export',
      this.#handler((req, res, log) => this.#export(req, res, log)),
    );
    this.router.get(
      '/audit/usage',
      this.#handler((req, res, log) => this.#usage(req, res, log)),
    );
    this.router.get(
      '/requests/:id',
      this.#handler((req, res, log) =>
        this.#sendPage(req, res, log, readRequest(String(req.params['id']), req.query)),
      ),
    );
  }

  /** Ends every search. */
  close(): void {
    this.#closing.abort();
  }

  #handler(handle: (req: Request, res: Response, log: AuditLogAccess) => Promise<void>): RequestHandler {
    const { log } = this.#options;
    return async (req, res) => {
      if (log === undefined) return sendProblem(res, 404, NO_LOG);
      try {
        await handle(req, res, log);
      } catch (error) {
        this.#sendError(res, error);
      }
    };
  }

  #sendError(res: Response, error: unknown): void {
    if (error instanceof ParameterError) {
      sendProblem(res, 400, error.message, { parameters: error.parameters });
    } else if (error instanceof ControlError) {
      sendControlError(res, error.code);
    } else if (!res.destroyed) {
      this.#options.onError(error);
      if (res.headersSent) res.destroy();
      else sendProblem(res, 500, 'The audit log cannot be searched. The log of the gateway has the reason.');
    }
  }

  async #sendPage(req: Request, res: Response, log: AuditLogAccess, request: PageRequest): Promise<void> {
    const { limit, after, budgetMs, query } = request;
    const task = { kind: 'page', limit, after, budgetMs } as const;
    const found = await this.#search(req, res, log, query, task);
    if (found !== undefined) res.json(this.#viewOf(found));
  }

  async #usage(req: Request, res: Response, log: AuditLogAccess): Promise<void> {
    const { query, by, format } = readUsage(req.query);
    const maxRows = format === 'csv' ? Number.POSITIVE_INFINITY : MAX_ROWS;
    const task = { kind: 'usage', by, lists: log.lists(), maxRows } as const;
    const counted = await this.#search(req, res, log, query, task);
    if (counted === undefined) return;
    if (format === 'json') res.json(usageView(counted));
    else {
      // The file alone has to say what it lacks: it is kept without this response.
      const errors = counted.errors.map((error) => csvLine([error])).join('');
      attach(res, 'usage', 'csv').send(usageCsv(counted.usage) + errors);
    }
  }

  /** Records and runs a search; undefined: the response says why there is no result, or the client has gone. */
  async #search<Task extends PageTask | UsageTask>(
    req: Request,
    res: Response,
    log: AuditLogAccess,
    query: Query,
    task: Task,
  ) {
    using slot = this.#searches.take();
    if (slot === undefined) {
      tooMany(res, 1, 'Other searches are under way. Retry later.');
      return undefined;
    }
    const { searchMs } = this.#bounds;
    const gone = this.#untilGone(req, res, searchMs + 5_000);
    const timeout = AbortSignal.timeout(searchMs);
    try {
      await this.#recordOnce(req, res, log, EVENTS[task.kind]);
      return await searchInThread(scopeOf(log, query), task, AbortSignal.any([gone, timeout]));
    } catch (error) {
      if (gone.aborted) return undefined;
      if (!timeout.aborted) throw error;
      sendProblem(res, 504, TOO_SLOW[task.kind]);
      return undefined;
    }
  }

  async #export(req: Request, res: Response, log: AuditLogAccess): Promise<void> {
    const { query, format } = readExport(req.query);
    using slot = this.#exports.take();
    if (slot === undefined) return tooMany(res, 30, 'Another export is under way. Retry later.');
    const { exportResults, exportMs, stalledMs } = this.#bounds;
    await recordIn(log, 'audit-export', detailsOf(req, res, log, { format }));
    const gone = this.#untilGone(req, res, exportMs + stalledMs);
    const scope = scopeOf(log, query);
    const task = { kind: 'export', format, most: exportResults, timeMs: exportMs } as const;
    try {
      for await (const piece of runInThread(scope, task, gone)) {
        if (callerOf(res)?.isAdmitted() === false) return void res.destroy();
        if (!res.headersSent) attach(res, 'audit', format);
        if (!res.write(piece)) await drained(res, gone, stalledMs);
      }
      res.end();
    } catch (error) {
      // A connection that breaks off shows the client that the export is not complete.
      if (!gone.aborted) throw error;
    }
  }

  /** A signal of the end of the connection or of the control plane. `idleMs`: time without a byte. */
  #untilGone(req: Request, res: Response, idleMs: number): AbortSignal {
    req.socket.setTimeout(idleMs);
    return AbortSignal.any([clientGone(res), this.#closing.signal]);
  }

  /** Records a search, unless the same person and address sent it, or another page of it, a short time ago. */
  async #recordOnce(req: Request, res: Response, log: AuditLogAccess, event: Inquiry): Promise<void> {
    const details = detailsOf(req, res, log, {});
    const query = hash('sha256', JSON.stringify([event, details]), 'base64url');
    if (this.#recorded.suppresses(query)) return;
    await recordIn(log, event, details);
    this.#recorded.admit(query);
  }

  #viewOf({ page, notes }: ThreadPage): SearchView {
    const { found, next, records } = page;
    const template = this.#options.traceUrl;
    return {
      rows: found.map((each) => rowOf(each, template)),
      cursor: next === undefined ? null : cursorOf(next),
      searchedTo: next?.time ?? null,
      recordsRead: records,
      notes,
    };
  }
}

/** @throws ControlError if it cannot be recorded: nobody reads the audit log without a trace in it */
async function recordIn(log: AuditLogAccess, event: Inquiry, details: AdminDetails): Promise<void> {
  if (!(await log.record(event, details))) throw new ControlError('audit-unavailable');
}

function scopeOf(log: AuditLogAccess, query: Query): ThreadScope {
  const { directory, keys, keysDirectory } = log;
  return { directory, keys, keysDirectory, parameters: log.parameters(), query };
}

/** Makes the response a file with that kind of name; the time is that of the response. */
function attach(res: Response, name: string, format: keyof typeof TYPES): Response {
  const time = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
  res.set('content-type', TYPES[format]);
  return res.set('content-disposition', `attachment; filename="${name}-${time}.${format}"`);
}

function usageView({ usage, notes }: ThreadUsage): UsageView {
  const { by, rows, other = null, total, daily } = usage;
  const sentences = usageNotes(usage).map((note) => `${capitalized(note)}.`);
  return { by, rows, other, total, daily, notes: [...notes, ...sentences] };
}

function rowOf(found: Found, template: string | undefined): SearchView['rows'][number] {
  // The lines are as the gateway wrote them, with all members of the view.
  if ('event' in found) return found.event as unknown as SearchView['rows'][number];
  const row = { ...found.access, outcome: found.outcome } as unknown as RequestRow;
  const traceUrl = template && traceUrlOf(template, row);
  return traceUrl === undefined ? row : { ...row, traceUrl };
}

/** The person and the address of the client, and the criteria as it sent them. */
function detailsOf(req: Request, res: Response, log: AuditLogAccess, more: AdminDetails): AdminDetails {
  const { id } = req.params;
  const query = Object.entries(req.query)
    .filter(([name]) => !PAGING.has(name))
    .map(([name, value]) => `${name}=${PERSONAL.has(name) ? log.recorded(String(value)) : value}`);
  return {
    by: 'api',
    address: addressOf(req.socket),
    ...operatorDetails(callerOf(res)?.operator),
    query: id === undefined ? query : [`requestId=${id}`, ...query],
    ...more,
  };
}

/** Criteria whose values the log may have as pseudonyms. */
const PERSONAL: ReadonlySet<string> = new Set(['address', 'identifier', 'text']);
const PAGING: ReadonlySet<string> = new Set(['cursor', 'limit', 'seconds', 'format']);

async function drained(res: Response, gone: AbortSignal, withinMs: number): Promise<void> {
  const stalled = setTimeout(() => res.destroy(), withinMs);
  try {
    await once(res, 'drain', { signal: gone });
  } finally {
    clearTimeout(stalled);
  }
}

function tooMany(res: Response, seconds: number, detail: string): void {
  res.set('retry-after', String(seconds));
  sendProblem(res, 429, detail);
}

/** The address of the trace of a request by the template of `control.traceUrl`; undefined: it was not traced. */
function traceUrlOf(
  template: string,
  { traceId, requestId, time }: { traceId?: string; requestId: string; time: string },
): string | undefined {
  if (traceId === undefined) return undefined;
  const values: Readonly<Record<string, string>> = { traceId, requestId, time };
  return template.replace(/\{(traceId|requestId|time)\}/g, (_placeholder, name: string) =>
    encodeURIComponent(values[name] ?? ''),
  );
}
