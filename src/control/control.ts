import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type NextFunction, type Request, type Response } from 'express';
import helmet from 'helmet';
import type { Registry, RegistryContentType } from 'prom-client';
import { reportError } from '../base/report-error.ts';
import { admission } from './admission.ts';
import { Console, type ConsolePace } from './console.ts';
import { describeApi, type Offer } from './openapi.ts';
import { Pages } from './pages.ts';
import type { ConsoleSource } from './snapshot.ts';

/** One line of `/readyz`. */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** What is wrong and what follows from it; empty when ok. */
  readonly detail: string;
}

export interface Readiness {
  /** `degraded`: something is wrong, but requests are served. */
  readonly status: 'ready' | 'degraded' | 'unready';
  readonly checks: readonly Check[];
}

export interface ControlOptions {
  /** SHA-256, in hex, of the token that everything but health asks for; undefined: none. */
  readonly tokenSha256: string | undefined;
  readonly registry: Registry<RegistryContentType>;
  /** Brings the gauges that are read, not counted, up to date. */
  readonly observe: () => Promise<void>;
  readonly live: () => boolean;
  readonly readiness: () => Promise<Readiness>;
  /** What the data plane offers now. */
  readonly offer: () => Offer;
  readonly console: ConsoleSource;
  /** Where the built page of the console is. */
  readonly consoleFolder: string;
  readonly pace: ConsolePace;
  /** Told of what went wrong here; nobody else is. */
  readonly onError: (error: unknown) => void;
}

/** Most connections at a time. */
const CONNECTIONS = 1_000;
/** How long nothing may come or go on a connection while there is a request, in milliseconds. */
const IDLE_MS = 30_000;
/** How long one response may take, but for the events of the console, in milliseconds. */
const RESPONSE_MS = 60_000;
const SERVER = {
  headersTimeout: 10_000,
  requestTimeout: 20_000,
  keepAliveTimeout: 5_000,
  connectionsCheckingInterval: 1_000,
} as const;

/** Nothing from elsewhere, nothing inline, in nobody's frame. */
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
  // This plane speaks HTTP; what stands in front of it may have other pages on its host.
  strictTransportSecurity: false,
});

/** The control plane: health for orchestrators, metrics for Prometheus, the API described for clients, the console. */
export class ControlPlane {
  readonly #server: Server;
  readonly #console: Console;

  constructor(options: ControlOptions) {
    const { onError } = options;
    const pages = new Pages(options.consoleFolder);
    const guarded = admission(options.tokenSha256, pages);
    this.#console = new Console({
      source: options.console,
      pages,
      admission: guarded,
      ...options.pace,
      onError,
    });
    const app = express();
    app.disable('x-powered-by');
    app.use(SECURITY);
    app.use((req, res, next) => {
      if (req.path !== '/api/events') {
        const timer = setTimeout(() => res.destroy(), RESPONSE_MS).unref();
        res.once('close', () => clearTimeout(timer));
      }
      next();
    });
    app.get('/livez', (_req, res) => {
      res
        .status(options.live() ? 200 : 503)
        .type('text/plain')
        .send(options.live() ? 'ok\n' : 'not live\n');
    });
    app.get('/readyz', async (req, res) => {
      const readiness = await options.readiness();
      res.status(readiness.status === 'unready' ? 503 : 200);
      if ('verbose' in req.query) res.type('text/plain').send(readable(readiness));
      else res.json(readiness);
    });
    app.get('/openapi.json', guarded.reads, (_req, res) => {
      res.json(describeApi(options.offer()));
    });
    app.get('/metrics', guarded.reads, async (_req, res) => {
      await options.observe();
      res.type(options.registry.contentType).send(await options.registry.metrics());
    });
    app.use(this.#console.router);
    app.use((_req, res) => {
      res
        .status(404)
        .type('text/plain')
        .send(
          'Not found. This is the control plane: / (console), /livez, /readyz, /metrics, /openapi.json.\n',
        );
    });
    // express would answer with the stack. It knows an error handler by its four parameters.
    app.use((error: { status?: unknown }, _req: Request, res: Response, _next: NextFunction) => {
      // A body that could not be read has one.
      const { status } = error;
      if (typeof status === 'number' && status < 500) {
        res.sendStatus(status);
        return;
      }
      onError(error);
      res.sendStatus(500);
    });
    this.#server = createServer(SERVER, app);
    this.#server.maxConnections = CONNECTIONS;
    // A connection on which nothing moves, also when the other side does not read.
    this.#server.setTimeout(IDLE_MS);
  }

  /** Resolves once the port is open; rejects when it cannot be. */
  async listen(address: string, port: number): Promise<AddressInfo> {
    this.#server.listen(port, address);
    await once(this.#server, 'listening');
    // A connection that cannot be accepted must not end the process.
    this.#server.on('error', reportError);
    return this.#server.address() as AddressInfo;
  }

  async close(): Promise<void> {
    this.#console.close();
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }
}

/** For people: a line for each check, then what follows from all of them. */
function readable({ status, checks }: Readiness): string {
  const lines = checks.map(({ name, ok, detail }) => (ok ? `ok     ${name}` : `wrong  ${name}: ${detail}`));
  return `${[...lines, status].join('\n')}\n`;
}
