import { createHash } from 'node:crypto';
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { escapeMarkup } from '../base/printable.ts';
import type { HashName } from './verification.ts';

/** A response before faults are applied. */
export interface Reply {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  /** A buffer gets a Content-Length; a stream has one in its headers or is sent chunked. */
  readonly body: Buffer | AsyncIterable<Buffer>;
  /** Called after the last chunk of a body; returns the trailers. */
  readonly trailers?: () => Record<string, string>;
  /** Link field of a 103 response, which is sent first. */
  readonly earlyLink?: string;
}

/** A request that has passed Digest and the address check. */
export interface SimulatedRequest {
  readonly request: IncomingMessage;
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: RequestBody;
}

const xml = 'application/xml;charset=UTF-8';

/** Creates an error response in the service's format. */
export function failure(status: number, errorCode: number, message: string): Reply {
  return {
    status,
    headers: { 'content-type': xml, 'x-frame-options': 'DENY' },
    body: failureBody(errorCode, message),
  };
}

/** Creates a response for a throttled client. @param callAt time of the next allowed call. */
export function throttled(status: 400 | 429, retryAfterSeconds: number, callAt: Date): Reply {
  const body = failureBody(500, 'Too many calls.', { nextCallTime: callAt.toISOString() });
  const headers = { 'content-type': xml };
  return status === 400
    ? { status, headers, body }
    : { status, headers: { ...headers, 'retry-after': String(retryAfterSeconds) }, body };
}

function failureBody(errorCode: number, userMessage: string, more: Record<string, string> = {}): Buffer {
  const errorDetails = { errorCode: String(errorCode), userMessage, ...more };
  return toXml('response', { status: 'FAILURE', errorDetails });
}

interface BodySummary {
  readonly length: number;
  readonly sha256: string;
  /** Hex hash, by the algorithm of the first caller. */
  readonly digest: string;
}

/** A request's body, which is hashed as it arrives and not stored. */
export class RequestBody {
  readonly #request: IncomingMessage;
  readonly #permit: () => void;
  #summary: Promise<BodySummary> | undefined;

  /** @param permit called before the first byte is read, to send 100 Continue if the client waits for it. */
  constructor(request: IncomingMessage, permit: () => void) {
    this.#request = request;
    this.#permit = permit;
  }

  /** Reads to the end once; later callers get the same summary. Rejects if the client leaves. */
  summary(hash: HashName): Promise<BodySummary> {
    this.#summary ??= this.#read(hash);
    return this.#summary;
  }

  async #read(hash: HashName): Promise<BodySummary> {
    this.#permit();
    const sha256 = createHash('sha256');
    const digest = createHash(hash);
    let length = 0;
    for await (const chunk of this.#request as AsyncIterable<Buffer>) {
      sha256.update(chunk);
      digest.update(chunk);
      length += chunk.length;
    }
    return { length, sha256: sha256.digest('hex'), digest: digest.digest('hex') };
  }
}

/** A text, or elements by name; a list repeats its element. */
export type Content = string | { readonly [name: string]: Content | readonly Content[] };

/** Formats the content as an XML document with one root element. */
export function toXml(root: string, content: Content): Buffer {
  return Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>\n${element(root, content)}\n`, 'utf8');
}

/** Formats the content as JSON; a list with one member stays a list. */
export function toJson(root: string, content: Content): Buffer {
  return Buffer.from(`${JSON.stringify({ [root]: content })}\n`, 'utf8');
}

function element(name: string, content: Content | readonly Content[]): string {
  if (isList(content)) return content.map((item) => element(name, item)).join('');
  const inner =
    typeof content === 'string'
      ? escapeMarkup(content)
      : Object.entries(content)
          .map(([key, value]) => element(key, value))
          .join('');
  return `<${name}>${inner}</${name}>`;
}

function isList(content: Content | readonly Content[]): content is readonly Content[] {
  return Array.isArray(content);
}
