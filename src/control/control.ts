import type { Server } from 'node:http';
import { pipeline } from 'node:stream/promises';
import express, {
  type NextFunction,
  type Request,
  type RequestHandler,
  type Response,
  Router,
} from 'express';
import helmet from 'helmet';
import { ignoreSystemError } from '../base/expected-errors.ts';
import { getOrInsert } from '../base/maps.ts';
import { createServer } from '../base/node-http.ts';
import { boundConnections } from '../base/open-counts.ts';
import { closeServer, type OpenAddress, openPort, type PortOptions } from '../base/open-port.ts';
import { pipelineBound } from '../base/pipeline-bound.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { type ActionsOptions, actionsRouter } from './actions.ts';
import { admission, atOnce } from './admission.ts';
import { type AuditApiOptions, LONG_PATHS } from './audit-api.ts';
import { Console, type ConsolePace } from './console.ts';
import { type LoginDeps, loginRouter } from './login.ts';
import type { MetricsFormat, MetricsText } from './merged-metrics.ts';
import { OidcClient, type OidcOptions } from './oidc.ts';
import { describeApi, type Offer } from './openapi.ts';
import { Pages } from './pages.ts';
import { type Queries, queriesRouter } from './queries.ts';
import { type Readiness, readiness, readinessText } from './readiness.ts';
import { Cookies, type SessionBounds, Sessions } from './sessions.ts';
import type { ConsoleSource } from './snapshot.ts';
import { TokenGuard, type TokenHashes } from './token-guard.ts';

export interface ControlOptions
  extends Omit<ActionsOptions, 'admission' | 'roles'>,
    Pick<LoginDeps, 'record' | 'onFailure'> {
  /** The tokens that everything but health requires; undefined: none. */
  readonly tokens: TokenHashes | undefined;
  /** The sign-in by name; undefined: there is none. */
  readonly oidc: OidcOptions | undefined;
  readonly session: SessionBounds;
  readonly queries: Queries;
  /** The instruments of sign-ins and sessions. */
  readonly metrics: Pick<Metrics, 'signIns' | 'sessions'>;
  /** Returns the current metrics of every process of the gateway. */
  readonly scrape: (format: MetricsFormat) => Promise<MetricsText>;
  readonly live: () => boolean;
  /** Returns the current offer of the data plane, the same object while it has not changed. */
  readonly offer: () => Offer;
  readonly console: ConsoleSource;
  /** The audit log that can be searched. */
  readonly audit: Omit<AuditApiOptions, 'onError'>;
  /** Folder of the built console. */
  readonly consoleFolder: string;
  readonly pace: ConsolePace;
  readonly timeouts?: ControlTimeouts;
}

/** Timeouts in milliseconds. */
interface ControlTimeouts {
  /** Time from the opening of a connection, or the end of a response, to the end of a request's headers. */
  readonly headers: number;
  /** Time without a byte in either direction during a request. */
  readonly idle: number;
  /** Maximum time of one response, except the event stream of the console and searches in the audit log. */
  readonly response: number;
}

const TIMEOUTS: ControlTimeouts = { headers: 10_000, idle: 30_000, response: 60_000 };

/** Maximum number of open connections, and of those of one address, which is all people behind a proxy. */
const CONNECTIONS = 1_000;
const CONNECTIONS_OF_SENDER = 250;
/** Maximum number of concurrent scrapes. Prometheus makes one at a time. */
const SCRAPES = 16;
/** And of the description of the API. */
const DOWNLOADS = 16;

/** No foreign resources, no inline scripts, no framing. */
const SECURITY = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      imgSrc: ["'self'"],
      connectSrc: ["'self'"],
      formAction: ["'self'"],
      baseUri: ["'none'"],
      frameAncestors: ["'none'"],
    },
  },
  // The control plane serves plain HTTP, and its host may serve other pages without TLS.
  strictTransportSecurity: false,
});

/**
 * The control plane: health for orchestrators, metrics for Prometheus, the OpenAPI document, the console.
 */
export class ControlPlane {
  readonly #server: Server;
  readonly #console: Console;

  constructor(options: ControlOptions) {
    const { onError, timeouts = TIMEOUTS } = options;
    const { tokens, oidc, session, clock } = options;
    const pages = new Pages(options.consoleFolder, { token: tokens !== undefined, oidc: oidc !== undefined });
    const access = {
      guard: tokens && new TokenGuard(tokens),
      sessions: new Sessions(session, clock),
      cookies: new Cookies(oidc?.publicUrl),
      publicOrigin: oidc?.publicUrl,
    };
    const isOpen = tokens === undefined && oidc === undefined;
    const guarded = admission(isOpen, { ...access, roles: oidc?.roles });
    this.#console = new Console({
      source: options.console,
      pages,
      admission: guarded,
      audit: options.audit,
      ...options.pace,
      onError,
    });
    const app = express();
    app.disable('x-powered-by');
    app.use(SECURITY, pipelineBound(), keepNothing, responseBound(timeouts.response));
    app.use(healthRouter(options));
    const documents = new WeakMap<Offer, string>();
    app.get('/openapi.json', guarded.requireRead, atOnce(DOWNLOADS, 'downloads'), (_req, res) => {
      const offer = options.offer();
      res.type('json').send(getOrInsert(documents, offer, () => JSON.stringify(describeApi(offer))));
    });
    app.get('/metrics', guarded.requireRead, atOnce(SCRAPES, 'scrapes'), async (req, res) => {
      if (!isOpen) options.metrics.sessions.set(access.sessions.count);
      const { contentType, pieces } = await options.scrape(metricsFormat(req));
      res.vary('accept').type(contentType);
      await pipeline(pieces, res).catch(ignoreSystemError);
    });
    if (!isOpen) {
      const { metrics, record, onFailure } = options;
      const provider = oidc && new OidcClient(oidc, clock);
      const lifeMs = session.life;
      app.use(loginRouter({ ...access, oidc: provider, pages, lifeMs, metrics, record, onFailure }));
    }
    app.use(actionsRouter({ ...options, admission: guarded, roles: oidc?.roles }));
    app.use(queriesRouter({ ...options, admission: guarded }));
    app.use(this.#console.router);
    app.use(notFound, errorHandler(onError));
    const server = {
      headersTimeout: timeouts.headers,
      requestTimeout: 2 * timeouts.headers,
      keepAliveTimeout: 5_000,
      connectionsCheckingInterval: Math.min(1_000, timeouts.headers),
    };
    this.#server = createServer(server, app);
    this.#server.maxConnections = CONNECTIONS;
    // Probes of the orchestrator must find room: it restarts a gateway that it cannot ask.
    boundConnections(this.#server, CONNECTIONS_OF_SENDER);
    // Closes an idle connection, also when the peer does not read.
    this.#server.setTimeout(timeouts.idle);
  }

  /** Resolves when the port or socket is open; rejects if it cannot be opened. */
  listen(place: PortOptions): Promise<OpenAddress> {
    return openPort(this.#server, place, 'control');
  }

  async close(): Promise<void> {
    this.#console.close();
    await closeServer(this.#server);
  }
}

/** Ends a response that takes too long. The event stream and searches in the audit log have bounds of their own. */
function responseBound(ms: number): RequestHandler {
  return (req, res, next) => {
    if (req.path !== '/api/events' && !LONG_PATHS.test(req.path)) {
      const timer = setTimeout(() => res.destroy(), ms).unref();
      res.once('close', () => clearTimeout(timer));
    }
    next();
  };
}

/** Serves `/livez` and `/readyz`, which need no token. */
function healthRouter({ live, console: source }: Pick<ControlOptions, 'live' | 'console'>): Router {
  const router = Router();
  router.get('/livez', (_req, res) => {
    const isLive = live();
    res
      .status(isLive ? 200 : 503)
      .type('text/plain')
      .send(isLive ? 'ok\n' : 'not live\n');
  });
  let asked: Promise<Readiness> | undefined;
  router.get('/readyz', async (req, res) => {
    // Anyone may ask, and each answer takes a question to every worker: who asks meanwhile gets the same.
    asked ??= source
      .state()
      .then(readiness)
      .finally(() => {
        asked = undefined;
      });
    const content = await asked;
    res.status(content.status === 'down' ? 503 : 200);
    if ('verbose' in req.query) res.type('text/plain').send(readinessText(content));
    else res.json(content);
  });
  return router;
}

const notFound: RequestHandler = (_req, res) => {
  res
    .status(404)
    .type('text/plain')
    .send('Not found. This is the control plane: / (console), /livez, /readyz, /metrics, /openapi.json.\n');
};

/** Express would send the stack trace. It recognizes an error handler by its four parameters. */
function errorHandler(onError: (error: unknown) => void) {
  return (error: { status?: unknown }, _req: Request, res: Response, _next: NextFunction): void => {
    // Errors of the body parser have a status.
    const { status } = error;
    if (typeof status === 'number' && status < 500) {
      res.sendStatus(status);
      return;
    }
    onError(error);
    if (res.headersSent) res.destroy();
    else res.sendStatus(500);
  };
}

/** A browser must not keep what a person saw after the sign-out. Assets are the same for everybody. */
function keepNothing(req: Request, res: Response, next: NextFunction): void {
  if (!req.path.startsWith('/assets/')) res.set('cache-control', 'no-store');
  next();
}

/** Returns OpenMetrics for a client that names it, as Prometheus does, with any version and further parameters. */
function metricsFormat({ headers: { accept = '' } }: Request): MetricsFormat {
  return /\bapplication\/openmetrics-text\b/i.test(accept) ? 'openmetrics' : 'prometheus';
}
