import type { Cancellable } from '../../../src/base/cancellation.ts';
import { GatewayError } from '../../../src/base/errors.ts';
import type { Exchange, Message } from '../../../src/handshake/exchange.ts';
import { type Lost, type ResponseSource, UpstreamResponse } from '../../../src/handshake/response.ts';
import { isConnectionLost, upstreamError } from '../../../src/transport/errors.ts';
import { hostOf, type Network } from '../network.ts';
import type { Planned, SimulatedProcess } from '../world.ts';
import type { UpstreamReply } from './server.ts';
import type { UpstreamService } from './service.ts';

const CONNECT_TIMEOUT_MS = 2_000;
/** Time between the head of a response and its end, in milliseconds. */
const BODY_MS = 2;
const BODY = Buffer.from('response');

/** Is told of each exchange of a gateway. */
export interface ExchangeListener {
  sent(message: Message): void;
  /** Undefined: no response came. */
  ended(message: Message, reply: UpstreamReply | undefined): void;
}

/** The connections of one gateway to the upstream, in the place of `src/transport/`. */
export class UpstreamConnections {
  readonly process: SimulatedProcess;
  readonly service: UpstreamService;
  readonly network: Network;
  readonly listener: ExchangeListener;
  readonly responseTimeout: number;
  /** Connections that are open and free. */
  idle = 0;

  constructor(
    process: SimulatedProcess,
    service: UpstreamService,
    network: Network,
    listener: ExchangeListener,
    responseTimeout: number,
  ) {
    this.process = process;
    this.service = service;
    this.network = network;
    this.listener = listener;
    this.responseTimeout = responseTimeout;
  }

  readonly exchange: Exchange = (message) =>
    new Promise((resolve, reject) => new SimulatedExchange(this, message, resolve, reject).begin());
}

/** One request and its response. */
class SimulatedExchange implements ResponseSource, Cancellable {
  readonly #connections: UpstreamConnections;
  readonly #message: Message;
  readonly #resolve: (result: UpstreamResponse | Lost) => void;
  readonly #reject: (error: GatewayError) => void;
  #reused = false;
  #progress: 'unsent' | 'sent' | 'responding' = 'unsent';
  #response: UpstreamResponse | undefined;
  #timer: Planned | undefined;
  #over = false;
  #forget: (() => void) | undefined;

  constructor(
    connections: UpstreamConnections,
    message: Message,
    resolve: (result: UpstreamResponse | Lost) => void,
    reject: (error: GatewayError) => void,
  ) {
    this.#connections = connections;
    this.#message = message;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(): void {
    const { message, connections } = { message: this.#message, connections: this.#connections };
    message.request.cancellation.add(this);
    if (this.#over) return;
    this.#reused = message.freshConnection !== true && connections.idle > 0;
    if (this.#reused) {
      connections.idle -= 1;
      this.#send();
      return;
    }
    const { process } = connections;
    this.#timer = process.timer(CONNECT_TIMEOUT_MS, 'connect timeout', () => this.#break('ETIMEDOUT'));
    process.deliver(2 * this.#wayThere(), 'connected', () => this.#connected());
  }

  #connected(): void {
    if (this.#over) return;
    this.#cancelTimer();
    if (this.#connections.service.isUp) this.#send();
    else this.#break('ECONNREFUSED');
  }

  #send(): void {
    const { process, service, listener, responseTimeout } = this.#connections;
    const message = this.#message;
    const refusal = message.refusal?.();
    if (refusal !== undefined) {
      this.cancel(refusal);
      return;
    }
    this.#progress = 'sent';
    listener.sent(message);
    this.#timer = process.timer(responseTimeout, 'response timeout', () => this.#timedOut());
    this.#forget = service.watch(() => this.#reset());
    const fate = service.takeFate();
    if (fate === 'lost-before' || !service.isUp) {
      process.deliver(this.#wayThere(), 'reset', () => this.#break('ECONNRESET'));
      return;
    }
    service.process.deliver(this.#wayThere(), `${message.method} ${message.target}`, () => this.#serve(fate));
  }

  #serve(fate: 'ok' | 'lost-after'): void {
    const { process, service } = this.#connections;
    const { method, target: uri, headers } = this.#message;
    const reply = service.handle({ address: hostOf(process.name), method, uri, headers });
    service.process.deliver(service.serviceTime(), `answers ${reply.status} ${reply.verdict}`, () => {
      process.deliver(this.#wayBack(), `response ${reply.status}`, () => {
        if (fate === 'lost-after') this.#break('ECONNRESET');
        else this.#respond(reply);
      });
    });
  }

  #respond(reply: UpstreamReply): void {
    if (this.#over) return;
    const { status, headers } = reply;
    this.#progress = 'responding';
    this.#cancelTimer();
    const response = new UpstreamResponse(status, '', [...headers], true, this);
    this.#response = response;
    this.#resolve(response);
    if (status === 401) {
      this.#whole(reply, response);
      return;
    }
    this.#connections.process.deliver(BODY_MS, 'end of response', () => {
      if (this.#over) return;
      response.push(BODY);
      this.#whole(reply, response);
    });
  }

  #whole(reply: UpstreamReply, response: UpstreamResponse): void {
    this.#close(reply);
    this.#connections.idle += 1;
    response.end([]);
  }

  /** The body is one small piece. */
  pause(): void {}

  resume(): void {}

  abandon(): void {
    this.#close(undefined);
  }

  /** Also at a timeout. */
  cancel(error: GatewayError): void {
    if (!this.#close(undefined)) return;
    if (this.#response === undefined) this.#reject(error);
    else this.#response.fail(error);
  }

  #timedOut(): void {
    this.cancel(
      new GatewayError('upstream-timeout', 'The upstream did not respond in time (timeouts.response).'),
    );
  }

  /** The upstream ended: its connections break a moment later. */
  #reset(): void {
    this.#connections.process.deliver(this.#wayBack(), 'reset by the upstream', () =>
      this.#break('ECONNRESET'),
    );
  }

  #break(code: string): void {
    if (this.#over) return;
    const thrown = Object.assign(new Error(code), { code });
    const error = upstreamError(thrown);
    if (this.#progress === 'responding') {
      this.cancel(error);
      return;
    }
    const sent = this.#progress === 'sent';
    this.#connections.idle = 0;
    const lost = {
      kind: 'lost',
      error,
      broke: isConnectionLost(thrown),
      sent,
      reused: this.#reused,
    } as const;
    if (this.#close(undefined)) this.#resolve(lost);
  }

  /** False: it is over already. */
  #close(reply: UpstreamReply | undefined): boolean {
    if (this.#over) return false;
    this.#over = true;
    this.#cancelTimer();
    this.#forget?.();
    this.#message.request.cancellation.remove(this);
    if (this.#progress !== 'unsent') this.#connections.listener.ended(this.#message, reply);
    return true;
  }

  #cancelTimer(): void {
    if (this.#timer !== undefined) this.#connections.process.cancel(this.#timer);
  }

  #wayThere(): number {
    const { network, process } = this.#connections;
    return network.arrival(hostOf(process.name), 'upstream') - process.world.now;
  }

  #wayBack(): number {
    const { network, process } = this.#connections;
    return network.arrival('upstream', hostOf(process.name)) - process.world.now;
  }
}
