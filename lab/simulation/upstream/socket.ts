import { Duplex } from 'node:stream';
import { hostOf } from '../network.ts';
import type { SimulatedProcess } from '../world.ts';
import { type UpstreamMessage, type UpstreamReply, type UpstreamServer, valuesOf } from './server.ts';
import type { ExchangeListener, UpstreamService } from './service.ts';

/** Time between the head of a response and its end, in milliseconds. */
const BODY_MS = 2;
const BODY = 'response';
/** The longest time between a 401 and the end of its connection, in milliseconds. */
const CLOSE_MS = 20;

/** A gateway's end of a connection to the upstream, in the place of a socket of Node.js. */
export class SimulatedSocket extends Duplex {
  readonly localAddress: string;
  readonly #process: SimulatedProcess;
  readonly #service: UpstreamService;
  /** The one that the connection leads to. */
  readonly #server: UpstreamServer;
  readonly #listener: ExchangeListener | undefined;
  readonly #forget: () => void;
  #written = '';
  /** Its head has gone out, and no response has come. */
  #request: UpstreamMessage | undefined;
  /** True if the whole request has. */
  #isSent = false;
  /** True: the server has closed, and what it gets resets the connection. */
  #isClosed = false;

  constructor(process: SimulatedProcess, service: UpstreamService) {
    super({ allowHalfOpen: false });
    this.localAddress = hostOf(process.name);
    this.#process = process;
    this.#service = service;
    this.#server = service.nextServer;
    this.#listener = service.listenerOf(process);
    this.#forget = service.watch(() => this.#resetLater(service.wayBack(process), 'reset by the upstream'));
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  override _read(): void {}

  override _write(bytes: Buffer, _encoding: string, callback: () => void): void {
    if (this.#isSent) throw new Error('a connection got a request while it carried one');
    this.#written += bytes.toString('latin1');
    this.#send();
    callback();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#forget();
    this.#end(undefined);
    callback(error);
  }

  /** Sends what was written, once it is a whole request. */
  #send(): void {
    const headEnd = this.#written.indexOf('\r\n\r\n');
    if (headEnd === -1) return;
    if (this.#request === undefined) {
      this.#request = requestOf(this.#written.slice(0, headEnd), this.localAddress);
      this.#listener?.sent(this.#request);
    }
    const request = this.#request;
    if (!isWhole(request, this.#written.slice(headEnd + 4))) return;
    this.#isSent = true;
    this.#written = '';
    const fate = this.#isClosed ? 'lost-before' : this.#service.takeFate();
    const wayThere = this.#service.wayThere(this.#process);
    if (fate === 'lost-before') this.#resetLater(wayThere, 'reset');
    else
      this.#service.process.deliver(wayThere, `${request.method} ${request.uri}`, () =>
        this.#serve(request, fate),
      );
  }

  #serve(request: UpstreamMessage, fate: 'ok' | 'lost-after'): void {
    const service = this.#service;
    const reply = this.#server.handle(request, service.process);
    service.process.deliver(service.serviceTime(), `answers ${reply.status} ${reply.verdict}`, () => {
      const wayBack = service.wayBack(this.#process);
      if (fate === 'lost-after') this.#resetLater(wayBack, 'reset');
      else this.#process.deliver(wayBack, `response ${reply.status}`, () => this.#respond(request, reply));
    });
  }

  #respond(request: UpstreamMessage, reply: UpstreamReply): void {
    if (this.destroyed) return;
    this.#end(reply);
    const isLast = valuesOf(request.headers, 'connection').includes('close');
    const body = reply.status === 401 ? '' : BODY;
    const fields = ['content-length', String(body.length), ...(isLast ? ['connection', 'close'] : [])];
    this.push(headOf(reply.status, [...reply.headers, ...fields]));
    const finish = (): void => {
      if (this.destroyed) return;
      if (body !== '' && request.method !== 'HEAD') this.push(body);
      if (isLast) this.push(null);
    };
    if (reply.status === 401 && this.#service.closesBehind401) this.#close();
    if (body === '') finish();
    else this.#process.deliver(BODY_MS, 'end of response', finish);
  }

  #close(): void {
    this.#isClosed = true;
    const ms = this.#process.world.random.between(0, CLOSE_MS);
    this.#process.deliver(ms, 'end of connection', () => {
      if (!this.destroyed) this.push(null);
    });
  }

  #resetLater(ms: number, label: string): void {
    this.#process.deliver(ms, label, () => {
      this.destroy(Object.assign(new Error('ECONNRESET'), { code: 'ECONNRESET' }));
    });
  }

  /** The request that is under way has ended, if there is one. */
  #end(reply: UpstreamReply | undefined): void {
    const request = this.#request;
    this.#request = undefined;
    this.#isSent = false;
    if (request !== undefined) this.#listener?.ended(request, reply);
  }
}

function requestOf(head: string, address: string): UpstreamMessage {
  const [line = '', ...fields] = head.split('\r\n');
  const [method = '', uri = ''] = line.split(' ');
  const headers = fields.flatMap((field) => {
    const colon = field.indexOf(':');
    return [field.slice(0, colon), field.slice(colon + 1).trim()];
  });
  return { address, method, uri, headers };
}

function isWhole({ headers }: UpstreamMessage, body: string): boolean {
  if (valuesOf(headers, 'transfer-encoding').length > 0) return body.endsWith('0\r\n\r\n');
  const [length = '0'] = valuesOf(headers, 'content-length');
  return body.length >= Number(length);
}

function headOf(status: number, headers: readonly string[]): string {
  const lines = [`HTTP/1.1 ${status} `];
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}
