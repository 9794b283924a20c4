import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecureServer, type Server as SecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import { Authentication } from './authentication.ts';
import type { Certificates } from './certificates.ts';
import { type Counts, createTally, Exchange, type Observer, Rules } from './exchange.ts';
import { Faults } from './faults.ts';
import { type Operation, operationOf } from './operations.ts';
import { type Behaviour, behaviourOf, type CheckedDeployment, changedBehaviour } from './settings.ts';

/** One deployment of the service: its server, its state and its counts. */
export class Deployment {
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
