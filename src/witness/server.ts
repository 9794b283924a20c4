import { createServer as createSecureServer } from 'node:https';
import type { SecureContextOptions } from 'node:tls';
import express, { type NextFunction, type Request, type RequestHandler, type Response } from 'express';
import helmet from 'helmet';
import { checkpointLine } from '../audit/checkpoint.ts';
import { monotonicClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { senderNetwork } from '../base/network.ts';
import { createServer } from '../base/node-http.ts';
import { boundConnections, OpenCounts } from '../base/open-counts.ts';
import {
  closeServer,
  type OpenAddress,
  openPort,
  type PortOptions,
  removeStaleSocket,
} from '../base/open-port.ts';
import { pipelineBound } from '../base/pipeline-bound.ts';
import { Throttle } from '../base/throttle.ts';
import type { ListenTls } from '../gateway/listener.ts';
import type { HeadStore } from './head-store.ts';
import type { WitnessMetrics } from './metrics.ts';
import type { Refusal, RefusalReason, Witness } from './witness.ts';

/** Bytes of a request: 63 hashes and a checkpoint have 4 KiB. */
const MAX_BODY = 16 * 1024;
const MAX_CONNECTIONS = 500;
/** Kinds of log lines that are throttled, each by itself. */
const MAX_KINDS = 1000;
/** Timeouts in milliseconds. */
const REQUEST_MS = 10_000;
const IDLE_MS = 30_000;

/** Connections, and requests under way, of one address or one /64 of IPv6: gateways with many workers may share it. */
const MAX_OF_SENDER = { connections: 100, requests: 64 };

/** The statuses of tlog-witness, and what a client reads. */
const REFUSALS: Readonly<Record<RefusalReason, readonly [status: number, text: string]>> = {
  malformed: [400, 'the request does not have the form of add-checkpoint'],
  'unknown-log': [404, 'this witness does not know the log: add its replica to logs'],
  'not-signed': [403, 'the key of the log did not sign the checkpoint'],
  'old-too-large': [400, 'the old size is larger than that of the checkpoint'],
  'other-size': [409, ''],
  'other-root': [409, ''],
  inconsistent: [422, 'the proof does not show that the checkpoint continues the last one'],
  'too-many-trees': [403, 'the log has begun too many trees: look into why, then remove old heads of it'],
};
/** No log comes to these by itself: it was cut off or written anew, or somebody sent a head of it with a wrong proof. */
const MISBEHAVIOUR: readonly RefusalReason[] = ['other-root', 'inconsistent', 'too-many-trees'];

type WitnessTls = Pick<ListenTls, 'cert' | 'key' | 'minVersion'>;

interface WitnessServerOptions {
  readonly witness: Witness;
  readonly store: HeadStore;
  readonly metrics: WitnessMetrics;
  /** Undefined: plain HTTP. */
  readonly tls: WitnessTls | undefined;
  readonly log: Log;
}

/** The port of a witness, which is open. */
interface WitnessServer {
  readonly address: OpenAddress;
  /** Uses this certificate for new connections. */
  renewTls(tls: WitnessTls): void;
  close(): Promise<void>;
}

/**
 * Serves the HTTP interface of a witness: `POST /add-checkpoint`, and `GET /checkpoints` for those who verify logs.
 * @throws PortError if the port cannot be opened
 */
export async function serveHeads(
  { witness, store, metrics, tls, log }: WitnessServerOptions,
  place: PortOptions,
): Promise<WitnessServer> {
  const app = express();
  app.disable('x-powered-by');
  app.use(helmet({ strictTransportSecurity: false }));
  app.use(pipelineBound());
  app.use(requestBound());
  const refusals = new Throttle(monotonicClock, MAX_KINDS);
  app.get('/livez', (_req, res) => void res.type('text/plain').send('ok\n'));
  app.get('/checkpoints', (_req, res) => {
    res.type('application/jsonl').send(store.all.map(({ note }) => checkpointLine(note)).join(''));
  });
  // Any type of content: the protocol names none.
  const body = express.text({ type: () => true, limit: MAX_BODY, defaultCharset: 'utf-8', inflate: false });
  app.post('/add-checkpoint', body, async (req, res) => {
    const text = typeof req.body === 'string' ? req.body : '';
    const result = await witness.add(text);
    metrics.count(result);
    if (result.kind === 'cosigned') return void res.type('text/plain').send(result.lines);
    const { reason, size } = result;
    const [status, message] = REFUSALS[reason];
    logRefusal(log, refusals, result, text);
    const isConflict = status === 409;
    // Express would add a character set.
    res
      .status(status)
      .setHeader('content-type', isConflict ? 'text/x.tlog.size' : 'text/plain; charset=utf-8');
    res.end(isConflict ? `${size}\n` : `${message}\n`);
  });
  app.use((_req, res) => void res.status(404).type('text/plain').send('not found\n'));
  // Express recognizes an error handler by its four parameters.
  app.use(
    (error: { status?: unknown; message?: unknown }, _req: Request, res: Response, _next: NextFunction) => {
      const status = typeof error.status === 'number' && error.status < 500 ? error.status : 500;
      if (status === 500) log.error({ reason: String(error.message) }, 'a head could not be stored');
      res
        .status(status)
        .type('text/plain')
        .send(status === 500 ? 'not stored\n' : 'bad request\n');
    },
  );
  const settings = {
    headersTimeout: REQUEST_MS,
    requestTimeout: REQUEST_MS,
    connectionsCheckingInterval: 1000,
  };
  const secure =
    tls && createSecureServer({ ...settings, ...contextOf(tls), handshakeTimeout: REQUEST_MS }, app);
  const server = secure ?? createServer(settings, app);
  server.maxConnections = MAX_CONNECTIONS;
  boundConnections(server, MAX_OF_SENDER.connections);
  server.setTimeout(IDLE_MS);
  await removeStaleSocket(place.address, 'listen');
  return {
    address: await openPort(server, place, 'listen'),
    renewTls: (renewed) => secure?.setSecureContext(contextOf(renewed)),
    close: () => closeServer(server),
  };
}

/** Refuses requests of a sender that has too many under way: each may cost a verification, and holds its body. */
function requestBound(): RequestHandler {
  const requests = new OpenCounts(MAX_OF_SENDER.requests);
  return (req, res, next) => {
    const leave = requests.enter(senderNetwork(req.socket.remoteAddress ?? ''));
    if (leave === undefined) {
      res.status(429).set({ 'retry-after': '1', connection: 'close' }).type('text/plain');
      res.send('too many requests of this address at once\n');
      return;
    }
    res.once('close', leave);
    next();
  };
}

function contextOf({ cert, key, minVersion }: WitnessTls): SecureContextOptions {
  return { cert, key, minVersion };
}

/** Anyone can send requests, also copies of heads that are public: they must not fill the log. */
function logRefusal(log: Log, refusals: Throttle, { reason, size }: Refusal, text: string): void {
  const isEvidence = MISBEHAVIOUR.includes(reason);
  const suppressed = refusals.admit(isEvidence ? `${reason} ${signedText(text)}` : reason);
  if (suppressed === undefined) return;
  // The request can be evidence against the log: its key signed the head, though not the proof.
  if (isEvidence) log.error({ reason, size, suppressed, request: text }, 'head refused');
  // A gateway whose position is gone asks like that.
  else if (reason === 'other-size') log.info({ reason, size, suppressed }, 'head refused');
  else log.warn({ reason, size, suppressed }, 'head refused');
}

/** The text of the checkpoint in a request: only the key of the log makes another one. */
function signedText(request: string): string {
  const [, text = ''] = request.split('\n\n', 2);
  return text;
}
