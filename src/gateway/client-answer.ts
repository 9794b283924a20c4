import type { IncomingMessage, ServerResponse } from 'node:http';
import { GatewayError } from '../base/errors.ts';
import type { SpentBuffers } from '../base/spent-buffers.ts';
import type { Permit } from '../limits/permit.ts';
import type { AnswerSink } from '../upstream/sink.ts';
import type { Visit } from './client-request.ts';
import { fieldValues, inboundHeaders, inboundTrailers, interimHeaders } from './headers.ts';

const ASCII = /^[\x20-\x7e]*$/;

/** What every answer needs to know of the gateway it goes through. */
export interface DataPlane {
  readonly spent: SpentBuffers;
  isDraining(): boolean;
}

/** Passes the upstream's answer to a client as it comes, and holds the upstream back when the client is slow. */
export class ClientAnswer implements AnswerSink {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #plane: DataPlane;
  readonly #requestId: string;
  #resume: (() => void) | undefined;
  /** Body bytes passed on. */
  bytes = 0;
  /** What limits say of the request; undefined: nothing limits it. */
  permit: Permit | undefined;

  constructor({ req, res }: Visit, requestId: string, plane: DataPlane) {
    this.#req = req;
    this.#res = res;
    this.#requestId = requestId;
    this.#plane = plane;
  }

  information(status: number, headers: readonly string[]): void {
    // HTTP/1.0 knows no interim answers (RFC 9110 §15.2), and the first releases of Node.js 24 cannot send any.
    if (this.#req.httpVersion !== '1.1' || this.#res.writeInformation === undefined) return;
    this.#res.writeInformation(status, interimHeaders(headers));
  }

  head(status: number, reason: string, headers: readonly string[]): void {
    checkCoding(headers);
    const trailers = this.#req.httpVersion === '1.1' && isChunked(status, this.#req.method, headers);
    // A client that heard of the shutdown sends its next request elsewhere.
    if (this.#plane.isDraining()) this.#res.shouldKeepAlive = false;
    // undici reads the phrase as UTF-8, Node takes the characters for bytes.
    const phrase = ASCII.test(reason) ? reason : Buffer.from(reason, 'utf8').toString('latin1');
    const fields = inboundHeaders(headers, this.#requestId, trailers);
    if (this.permit !== undefined) fields.push(...this.permit.fields);
    this.#res.writeHead(status, phrase, fields);
  }

  data(chunk: Buffer): boolean {
    this.bytes += chunk.length;
    this.#plane.spent.add(chunk.length);
    const more = this.#res.write(chunk);
    if (!more && this.#resume !== undefined) this.#res.once('drain', this.#resume);
    return more;
  }

  onDrain(resume: () => void): void {
    this.#resume = resume;
  }

  end(trailers: readonly string[]): void {
    if (trailers.length > 0) this.#res.addTrailers(inboundTrailers(trailers));
    this.#res.end();
  }
}

/** Chunks are undone on the way; a body coded in any other way would reach the client without a word of it. */
function checkCoding(headers: readonly string[]): void {
  if (fieldValues(headers, 'transfer-encoding').every((coding) => coding.toLowerCase() === 'chunked')) return;
  throw new GatewayError(
    'upstream-protocol',
    'The upstream sent a Transfer-Encoding that it was not asked for (RFC 9112 §7.4).',
  );
}

function isChunked(status: number, method: string | undefined, headers: readonly string[]): boolean {
  if (method === 'HEAD' || status === 204 || status === 304) return false;
  return !headers.some((item, index) => index % 2 === 0 && item.toLowerCase() === 'content-length');
}
