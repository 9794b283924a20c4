import express, { type Request, type Response } from 'express';
import { Counter, Gauge, Registry } from 'prom-client';
import { originOf } from '../audit/checkpoint.ts';
import { createServer } from '../base/node-http.ts';
import { closeServer, type OpenAddress, openPort, removeStaleSocket } from '../base/open-port.ts';
import { isForThisMachine, verdictOnToken } from '../control/admission.ts';
import { isAccess, TokenGuard } from '../control/token-guard.ts';
import type { HeadStore } from './head-store.ts';
import type { WitnessSettings } from './settings.ts';
import { REFUSAL_REASONS, type WitnessResult } from './witness.ts';

const PREFIX = 'digest_gateway_witness_';
const MAX_CONNECTIONS = 20;
/** Timeouts in milliseconds. */
const HEADERS_MS = 10_000;
const IDLE_MS = 30_000;

/** The metrics of a witness. The values of trees are read from the store when Prometheus asks. */
export class WitnessMetrics {
  readonly registry = new Registry();
  readonly #cosigned = new Counter({
    name: `${PREFIX}heads_cosigned_total`,
    help: 'Heads that were cosigned, by the replica of the log; a head that comes again counts again',
    labelNames: ['log'],
    registers: [this.registry],
  });
  readonly #refused = new Counter({
    name: `${PREFIX}heads_refused_total`,
    help: 'Heads that were not cosigned, by the reason; other-root, inconsistent and too-many-trees can be evidence against the log',
    labelNames: ['reason'],
    registers: [this.registry],
  });

  constructor(store: Pick<HeadStore, 'all'>) {
    // Without a value before the first refusal, Prometheus would see no increase.
    for (const reason of REFUSAL_REASONS) this.#refused.inc({ reason }, 0);
    const registers = [this.registry];
    new Gauge({
      name: `${PREFIX}tree_size`,
      help: 'Records under the last cosigned head of a tree',
      labelNames: ['origin'],
      registers,
      collect() {
        for (const { checkpoint } of store.all) this.set({ origin: originOf(checkpoint) }, checkpoint.size);
      },
    });
    new Gauge({
      name: `${PREFIX}head_timestamp_seconds`,
      help: 'When the last head of a tree was cosigned first',
      labelNames: ['origin'],
      registers,
      collect() {
        for (const { checkpoint, time } of store.all) this.set({ origin: originOf(checkpoint) }, time / 1000);
      },
    });
  }

  count(result: WitnessResult): void {
    if (result.kind === 'cosigned') this.#cosigned.inc({ log: result.log });
    else this.#refused.inc({ reason: result.reason });
  }
}

/** The port of the metrics, which is open. */
interface MetricsServer {
  readonly address: OpenAddress;
  close(): Promise<void>;
}

/**
 * Serves `GET /metrics` of a witness, on a listener of its own. Without a token, this machine alone reads.
 * @throws PortError if the port cannot be opened
 */
export async function serveMetrics(
  { registry }: WitnessMetrics,
  place: NonNullable<WitnessSettings['metrics']>,
): Promise<MetricsServer> {
  const { tokenSha256 } = place;
  const guard = tokenSha256 === undefined ? undefined : new TokenGuard({ full: tokenSha256 });
  const app = express();
  app.disable('x-powered-by');
  app.get('/metrics', async (req, res) => {
    if (!isAdmitted(req, res, guard)) return;
    res.setHeader('content-type', registry.contentType);
    res.end(await registry.metrics());
  });
  app.use((_req, res) => void res.status(404).type('text/plain').send('not found\n'));
  const server = createServer({ headersTimeout: HEADERS_MS, requestTimeout: 2 * HEADERS_MS }, app);
  server.maxConnections = MAX_CONNECTIONS;
  server.setTimeout(IDLE_MS);
  await removeStaleSocket(place.address, 'metrics');
  return { address: await openPort(server, place, 'metrics'), close: () => closeServer(server) };
}

/** False: the request got its response. */
function isAdmitted(req: Request, res: Response, guard: TokenGuard | undefined): boolean {
  if (guard === undefined) {
    if (isForThisMachine(req)) return true;
    res
      .status(421)
      .type('text/plain')
      .send('Without metrics.tokenSha256 only loopback addresses are answered.\n');
    return false;
  }
  const verdict = verdictOnToken(req, guard);
  if (isAccess(verdict)) return true;
  if (verdict === 'wrong')
    res.set('www-authenticate', 'Bearer realm="digest-gateway witness"').sendStatus(401);
  else res.set('retry-after', String(verdict)).sendStatus(429);
  return false;
}
