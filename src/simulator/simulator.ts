import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecureServer, type Server as SecureServer } from 'node:https';
import { type AddressInfo, isIPv6, type Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import express, { type NextFunction, type Request, type RequestHandler, type Response } from 'express';
import { ZodError } from 'zod';
import { Authentication } from './authentication.ts';
import { type Certificates, createCertificates } from './certificates.ts';
import { type Counts, createTally, Exchange, type Observer, Rules } from './exchange.ts';
import { Faults } from './faults.ts';
import { type Operation, operationOf } from './operations.ts';
import {
  type Behaviour,
  type BehaviourChange,
  behaviourOf,
  type CheckedDeployment,
  changedBehaviour,
  type SimulatorSettings,
  simulatorSettings,
} from './settings.ts';

/** The address of a deployment. */
interface DeploymentAddress {
  readonly port: number;
  /** For example `https://127.0.0.1:9443`. */
  readonly origin: string;
  /** The path segment after /api/. */
  readonly family: string;
}

/** A running upstream service. */
export interface Simulator<Name extends string = string> {
  /** Certificate of the authority that signed the servers' certificates, PEM. */
  readonly ca: string;
  readonly deployments: Readonly<Record<Name, DeploymentAddress>>;
  /** Port of plain HTTP on 127.0.0.1, for counts and changes. */
  readonly sidePort: number;
  /** Changes the behaviour for later requests; undefined restores a default. */
  set(deployment: Name, change: BehaviourChange): void;
  counts(deployment: Name): Counts;
  /** Simulates a restart: new nonce key, counts at zero. */
  reset(deployment: Name): void;
  /** Closes every connection and port. May be called more than once. */
  close(): Promise<void>;
}

export interface SimulatorDeps {
  /** Wall-clock milliseconds, for nonces and lock-outs. */
  readonly now?: () => number;
  /** Undefined: requests are not observed. */
  readonly observer?: Observer;
  /** Undefined: an authority and certificates of its own, which are also for `serverNames`. */
  readonly certificates?: Certificates | undefined;
}

/**
 * Starts the upstream service: an authority, its deployments, and the side port.
 * @throws ZodError for invalid settings; an error of `listen` if a port is taken, or of writing `caFile`.
 */
export async function startSimulator<Name extends string>(
  settings: SimulatorSettings<Name>,
  { now = Date.now, observer, certificates: given }: SimulatorDeps = {},
): Promise<Simulator<Name>> {
  const {
    host,
    sidePort: wantedPort,
    serverNames,
    caFile,
    deployments: wanted,
  } = simulatorSettings.parse(settings);
  const certificates = given ?? (await createCertificates(serverNames));
  // The gateway refuses an authority that others can write, as umask 002 would make it.
  if (caFile !== undefined) await writeFile(caFile, certificates.ca, { mode: 0o644 });
  const deployments = new Map(
    Object.entries(wanted).map(([name, each]) => [name, new Deployment(each, certificates, now, observer)]),
  );
  const side = sidePort(deployments, certificates.ca);
  const close = async () => {
    const closed = Promise.all([...Array.from(deployments.values(), (each) => each.close()), ended(side)]);
    side.closeAllConnections();
    await closed;
  };
  const listening = async () => {
    const addresses: Record<string, DeploymentAddress> = {};
    for (const [name, each] of deployments) {
      const port = await each.listen(host);
      const origin = `${each.scheme}://${isIPv6(host) ? `[${host}]` : host}:${port}`;
      addresses[name] = { port, origin, family: each.family };
    }
    return {
      addresses: addresses as Record<Name, DeploymentAddress>,
      port: await portOf(side, wantedPort, '127.0.0.1'),
    };
  };
  const { addresses, port } = await listening().catch(async (error: unknown) => {
    await close();
    throw error;
  });
  const named = (name: Name): Deployment => {
    const deployment = deployments.get(name);
    if (deployment === undefined) throw new RangeError(`The simulator has no deployment ${name}.`);
    return deployment;
  };
  return {
    ca: certificates.ca,
    deployments: addresses,
    sidePort: port,
    set: (name, change) => named(name).change(change),
    counts: (name) => named(name).counts(),
    reset: (name) => named(name).reset(),
    close,
  };
}

/** Plain HTTP on loopback: counts, changes of behaviour, and the authority's certificate. */
function sidePort(deployments: ReadonlyMap<string, Deployment>, ca: string): Server {
  const side = express().disable('x-powered-by');
  const changing =
    (act: (deployment: Deployment, change: unknown) => void): RequestHandler<{ name: string }> =>
    ({ params: { name }, body }, res) => {
      const deployment = deployments.get(name);
      if (deployment === undefined) res.status(404).json({ error: 'No deployment has this name.' });
      else {
        act(deployment, body);
        res.json(deployment.counts());
      }
    };
  const readBody = express.json({ limit: '64kb', strict: false, type: () => true });
  side.get('/counts', (_req, res) => {
    res.json(Object.fromEntries(Array.from(deployments, ([name, each]) => [name, each.counts()])));
  });
  side.get('/ca.pem', (_req, res) => {
    res.type('application/x-pem-file').send(ca);
  });
  side.put(
    '/deployments/:name',
    readBody,
    changing((deployment, change) => deployment.change(change)),
  );
  side.post(
    '/deployments/:name/reset',
    changing((deployment) => deployment.reset()),
  );
  side.use((_req, res) => {
    res.status(404).json({ error: 'No such path.' });
  });
  // Express recognizes a handler of errors by its four parameters.
  side.use((error: { status?: number }, _req: Request, res: Response, _next: NextFunction) => {
    if (error instanceof ZodError) {
      const issues = error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
      res.status(400).json({ error: issues.join('; ') });
    } else res.status(error.status ?? 500).json({ error: SIDE_ERRORS[error.status ?? 500] });
  });
  return createServer(side);
}

const SIDE_ERRORS: Readonly<Record<number, string>> = {
  400: 'The body is not JSON.',
  413: 'The body is too large.',
  500: 'The request failed.',
};

/** One deployment of the service: its server, its state and its counts. */
class Deployment {
  readonly family: string;
  readonly scheme: 'http' | 'https';
  readonly #settings: CheckedDeployment;
  readonly #certificates: Certificates;
  readonly #now: () => number;
  readonly #observer: Observer | undefined;
  readonly #server: Server;
  /** The same server; undefined for plain HTTP. */
  readonly #secure: SecureServer | undefined;
  readonly #sockets = new Map<string, Socket>();
  readonly #operation: Operation;
  #authentication: Authentication;
  #tally = createTally();
  #rules: Rules;

  constructor(
    settings: CheckedDeployment,
    certificates: Certificates,
    now: () => number,
    observer: Observer | undefined,
  ) {
    this.family = settings.family;
    this.scheme = settings.plaintext ? 'http' : 'https';
    this.#settings = settings;
    this.#certificates = certificates;
    this.#now = now;
    this.#observer = observer;
    this.#operation = operationOf(settings.kind, settings.family);
    this.#authentication = new Authentication(now);
    this.#rules = new Rules(behaviourOf(settings), new Faults(settings.faults));
    this.#secure = settings.plaintext ? undefined : createSecureServer(this.#identity(settings));
    this.#server = this.#secure ?? createServer();
    this.#server.keepAliveTimeout = settings.keepAliveTimeoutMs;
    this.#server.on('connection', (socket: Socket) => this.#track(socket));
    this.#server.on('request', (request, response) => this.#serve(request, response, () => {}));
    // Without this listener Node sends 100 Continue itself, even before a 401.
    this.#server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
      this.#serve(request, response, () => response.writeContinue());
    });
  }

  /** Resolves to the port. @throws if the port cannot be opened. */
  listen(host: string): Promise<number> {
    return portOf(this.#server, this.#settings.port, host);
  }

  /** Changes the behaviour for later requests. @throws ZodError, and then changes nothing. */
  change(change: unknown): void {
    const { behaviour: before, faults } = this.#rules;
    const after = changedBehaviour(before, change);
    // A used-up fault must not become active again through an unrelated change.
    const renewed = Object.hasOwn(Object(change), 'faults');
    this.#rules = new Rules(after, renewed ? new Faults(after.faults) : faults);
    this.#server.keepAliveTimeout = after.keepAliveTimeoutMs;
    if (after.tls !== before.tls || after.tlsMaxVersion !== before.tlsMaxVersion) {
      this.#secure?.setSecureContext(this.#identity(after));
    }
  }

  counts(): Counts {
    const { uses } = this.#authentication;
    return {
      ...structuredClone(this.#tally),
      distinctNonces: uses.distinct,
      nonces: uses.list(),
      ncViolations: uses.violations,
    };
  }

  /** Simulates a restart: earlier nonces are unknown, lock-outs end, counts are zero. */
  reset(): void {
    this.#authentication = new Authentication(this.#now);
    this.#tally = createTally();
  }

  /** Closes every connection at once. */
  close(): Promise<void> {
    const closed = ended(this.#server);
    for (const socket of this.#sockets.values()) socket.destroy();
    return closed;
  }

  #identity({ tls, tlsMaxVersion }: Pick<Behaviour, 'tls' | 'tlsMaxVersion'>): SecureContextOptions {
    return { ...this.#certificates.server[tls], maxVersion: tlsMaxVersion };
  }

  #track(socket: Socket): void {
    this.#tally.connections += 1;
    const key = nameOf(socket);
    this.#sockets.set(key, socket);
    socket.once('close', () => this.#sockets.delete(key));
  }

  #serve(request: IncomingMessage, response: ServerResponse, permit: () => void): void {
    const exchange = new Exchange({
      request,
      response,
      permit,
      address: request.socket.remoteAddress ?? '',
      raw: this.#sockets.get(nameOf(request.socket)),
      rules: this.#rules,
      operation: this.#operation,
      authentication: this.#authentication,
      tally: this.#tally,
      now: this.#now,
      observer: this.#observer,
    });
    void exchange.run();
  }
}

function nameOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

/** Opens a port, and resolves to its number. @throws if it cannot be opened. */
async function portOf(server: Server, port: number, host: string): Promise<number> {
  await once(server.listen(port, host), 'listening');
  return (server.address() as AddressInfo).port;
}

/** Accepts no more connections; resolves when none is open. */
function ended(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
