import { connect, type Socket } from 'node:net';
import { type RawResponse, readRawResponse } from '../../test/support/raw-client.ts';
import type { ClientResult, FuzzedExchange } from './exchange.ts';

/** The longest that an exchange may take, in milliseconds; the timeouts of the gateway are a tenth of it. */
const HANG_MS = 60_000;
/** An idle connection is used no more after this time, in milliseconds: the gateway closes it after 5 s. */
const KEPT_MS = 2_000;

/** A client that keeps its connection as long as the gateway does. */
export class KeepAliveClient {
  readonly #port: number;
  #socket: Socket | undefined;
  /** When the last response ended. */
  #usedAt = 0;

  constructor(port: number) {
    this.#port = port;
  }

  /** Sends the request; resolves when its response is whole, or the connection has ended. */
  async send(exchange: FuzzedExchange): Promise<ClientResult> {
    if (performance.now() - this.#usedAt > KEPT_MS) this.close();
    const socket = this.#socket ?? connect({ port: this.#port, host: '127.0.0.1', noDelay: true });
    this.#socket = socket;
    const reading = new Reading(exchange.script.method);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        reading.hangs = true;
        finish();
      }, HANG_MS);
      const finish = (): void => {
        clearTimeout(timer);
        socket.removeAllListeners();
        socket.on('error', () => socket.destroy());
        resolve();
      };
      socket.on('data', (chunk: Buffer) => {
        reading.add(chunk);
        if (reading.isOver) finish();
      });
      socket.once('end', () => {
        reading.end();
        finish();
      });
      // A reset is no end, so it does not make a response whole.
      socket.once('error', finish);
      socket.once('close', finish);
      socket.write(exchange.bytes, 'latin1');
    });
    this.#usedAt = performance.now();
    if (!reading.isKept) this.close();
    return reading;
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
  }
}

/** Reads the responses to one request. */
class Reading implements ClientResult {
  readonly answers: RawResponse[] = [];
  fault: string | undefined;
  hangs = false;
  /** True if the final response is whole, and the connection goes on. */
  isKept = false;
  readonly #method: string;
  readonly #chunks: Buffer[] = [];
  #pending: Buffer = Buffer.alloc(0);
  #isWhole = false;

  constructor(method: string) {
    this.#method = method;
  }

  get isOver(): boolean {
    return this.#isWhole || this.fault !== undefined;
  }

  get partial(): string {
    return this.#pending.toString('latin1');
  }

  get text(): string {
    return Buffer.concat(this.#chunks).toString('latin1');
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    this.#read(false);
  }

  end(): void {
    this.#read(true);
  }

  #read(ended: boolean): void {
    try {
      while (!this.isOver) {
        const found = readRawResponse(this.#pending, { method: this.#method, ended });
        if (found === undefined) return;
        this.#pending = this.#pending.subarray(found.length);
        this.answers.push(found.answer);
        if (found.answer.status >= 200) this.#finish(found.answer, ended);
      }
    } catch (error) {
      this.fault = String(error);
    }
  }

  #finish(final: RawResponse, ended: boolean): void {
    this.#isWhole = true;
    const closes = final.headers.some(
      ([name, value]) => name.toLowerCase() === 'connection' && value === 'close',
    );
    if (this.#pending.length > 0) this.fault = `${this.#pending.length} bytes follow the response`;
    this.isKept = !ended && !closes && this.fault === undefined;
  }
}
