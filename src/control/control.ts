import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type NextFunction, type Request, type Response } from 'express';
import helmet from 'helmet';
import type { Registry } from 'prom-client';
import { describeApi, type Offer } from './openapi.ts';

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
  /** SHA-256, in hex, of the bearer token that all but health asks for; undefined: none. */
  readonly tokenSha256: string | undefined;
  readonly registry: Registry;
  /** Brings the gauges that are read, not counted, up to date. */
  readonly observe: () => Promise<void>;
  readonly live: () => boolean;
  readonly readiness: () => Promise<Readiness>;
  /** What the data plane offers now. */
  readonly offer: () => Offer;
}

/** The control plane: health for the orchestrator, metrics for Prometheus, the API's description for clients. */
export class ControlPlane {
  readonly #server: Server;

  constructor(options: ControlOptions) {
    const app = express();
    app.disable('x-powered-by');
    app.use(helmet());
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
    const guard = requireToken(options.tokenSha256);
    app.get('/openapi.json', guard, (_req, res) => {
      res.json(describeApi(options.offer()));
    });
    app.get('/metrics', guard, async (_req, res) => {
      await options.observe();
      res.type(options.registry.contentType).send(await options.registry.metrics());
    });
    app.use((_req, res) => {
      res
        .status(404)
        .type('text/plain')
        .send('Not found. This is the control plane: /livez, /readyz, /metrics, /openapi.json.\n');
    });
    app.use(hideError);
    this.#server = createServer(app);
  }

  /** Resolves once the port is open; rejects when it cannot be. */
  async listen(address: string, port: number): Promise<AddressInfo> {
    this.#server.listen(port, address);
    await once(this.#server, 'listening');
    return this.#server.address() as AddressInfo;
  }

  async close(): Promise<void> {
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

function requireToken(tokenSha256: string | undefined) {
  const expected = tokenSha256 === undefined ? undefined : Buffer.from(tokenSha256, 'hex');
  return (req: Request, res: Response, next: NextFunction): void => {
    const [, token = ''] = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '') ?? [];
    if (expected === undefined || timingSafeEqual(createHash('sha256').update(token).digest(), expected)) {
      next();
      return;
    }
    res.set('www-authenticate', 'Bearer realm="digest-gateway control"').sendStatus(401);
  };
}

/** express would answer with the stack. It knows an error handler by its four parameters. */
function hideError(_error: unknown, _req: Request, res: Response, _next: NextFunction): void {
  res.sendStatus(500);
}
