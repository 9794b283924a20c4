import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecureServer, type Server as SecureServer } from 'node:https';
import { type AddressInfo, isIPv6, type Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
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
  const { host, sidePort, serverNames, caFile, deployments: wanted } = simulatorSettings.parse(settings);
  const certificates = given ?? (await createCertificates(serverNames));
  // The gateway refuses an authority that others can write, as umask 002 would make it.
  if (caFile !== undefined) await writeFile(caFile, certificates.ca, { mode: 0o644 });
  const deployments = new Map(
    Object.entries(wanted).map(([name, each]) => [name, new Deployment(each, certificates, now, observer)]),
  );
  const side = new SidePort(deployments, certificates.ca);
  const close = async () => {
    await Promise.all([...Array.from(deployments.values(), (each) => each.close()), side.close()]);
  };
  const listening = async () => {
    const addresses: Record<string, DeploymentAddress> = {};
    for (const [name, each] of deployments) {
      const port = await each.listen(host);
      const origin = `${each.scheme}://${isIPv6(host) ? `[${host}]` : host}:${port}`;
      addresses[name] = { port, origin, family: each.family };
    }
    return { addresses: addresses as Record<Name, DeploymentAddress>, port: await side.listen(sidePort) };
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

const maxBody = 65_536;

/** A response on the side port. */
interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Plain HTTP on loopback: counts, changes of behaviour, and the authority's certificate. */
class SidePort {
  readonly #server: Server;
  readonly #deployments: ReadonlyMap<string, Deployment>;
  readonly #ca: string;

  constructor(deployments: ReadonlyMap<string, Deployment>, ca: string) {
    this.#deployments = deployments;
    this.#ca = ca;
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  /** Resolves to the port. @throws if the port cannot be opened. */
  async listen(port: number): Promise<number> {
    await once(this.#server.listen(port, '127.0.0.1'), 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, type, body } = await this.#answer(request).catch(problem);
    response.writeHead(status, {
      'content-type': type,
      'content-length': Buffer.byteLength(body),
      ...(status === 413 && { connection: 'close' }),
    });
    response.end(body);
  }

  async #answer(request: IncomingMessage): Promise<Answer> {
    const [, first = '', name = '', last] = (request.url ?? '').split('/');
    const asked = `${request.method} /${first}${last === undefined ? '' : `/${last}`}`;
    if (asked === 'GET /counts' && name === '') return json(200, this.#counts());
    if (asked === 'GET /ca.pem' && name === '') {
      return { status: 200, type: 'application/x-pem-file', body: this.#ca };
    }
    if (asked !== 'PUT /deployments' && asked !== 'POST /deployments/reset') {
      return json(404, { error: 'No such path.' });
    }
    const deployment = this.#deployments.get(name);
    if (deployment === undefined) return json(404, { error: `No deployment has this name.` });
    if (last === 'reset') deployment.reset();
    else deployment.change(JSON.parse(await readBody(request)));
    return json(200, deployment.counts());
  }

  #counts(): Record<string, unknown> {
    return Object.fromEntries(
      Array.from(this.#deployments, ([name, deployment]) => [name, deployment.counts()]),
    );
  }
}

function json(status: number, value: unknown): Answer {
  return { status, type: 'application/json', body: `${JSON.stringify(value)}\n` };
}

class TooLarge extends Error {}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  // Without `destroyOnReturn: false` the connection would be destroyed before the error response is written.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxBody) throw new TooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function problem(error: unknown): Answer {
  if (error instanceof ZodError) {
    return json(400, {
      error: error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '),
    });
  }
  if (error instanceof SyntaxError) return json(400, { error: 'The body is not JSON.' });
  if (error instanceof TooLarge) return json(413, { error: 'The body is too large.' });
  return json(500, { error: 'The request failed.' });
}

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
    this.#rules = new Rules(behaviourOf(settings), this.#armed(settings.faults));
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
  async listen(host: string): Promise<number> {
    await once(this.#server.listen(this.#settings.port, host), 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  /** Changes the behaviour for later requests. @throws ZodError, and then changes nothing. */
  change(change: unknown): void {
    const { behaviour: before, faults } = this.#rules;
    const after = changedBehaviour(before, change);
    // A used-up fault must not become active again through an unrelated change.
    const renewed = Object.hasOwn(Object(change), 'faults');
    this.#rules = new Rules(after, renewed ? this.#armed(after.faults) : faults);
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
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      for (const socket of this.#sockets.values()) socket.destroy();
    });
  }

  #armed(faults: Behaviour['faults']): Faults {
    return new Faults(faults, (kind) => {
      this.#tally.faults[kind] += 1;
    });
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
