import { createRequire } from 'node:module';
import { GatewayError } from '../../src/base/errors.ts';
import type { RawHeaders } from '../../src/base/raw-headers.ts';
import type { ResponseSource, UpstreamResponse } from '../../src/handshake/response.ts';
import { ResponseReader } from '../../src/transport/response-reader.ts';

/** One response as a reader understood it. Text is Latin-1. */
export interface Reading {
  /** `whole`: read to its end. `partial`: more bytes are needed. `refused`: an error. */
  readonly result: 'whole' | 'partial' | 'refused';
  /** Interim responses but 100 (Continue): their status and fields. */
  readonly interim: readonly (readonly [number, RawHeaders])[];
  /** 0: no final head was read. */
  readonly status: number;
  readonly reason: string;
  readonly headers: RawHeaders;
  readonly body: string;
  readonly trailers: RawHeaders;
  /** True if the connection would be used again. */
  readonly isPersistent: boolean;
}

class Recording {
  result: Reading['result'] = 'partial';
  readonly interim: [number, RawHeaders][] = [];
  status = 0;
  reason = '';
  headers: RawHeaders = [];
  body = '';
  trailers: RawHeaders = [];
  isPersistent = false;

  onInformation(status: number, headers: RawHeaders): void {
    this.interim.push([status, headers]);
  }

  onHead({ status, reason, headers }: Pick<UpstreamResponse, 'status' | 'reason' | 'headers'>): void {
    this.status = status;
    this.reason = reason;
    this.headers = headers;
  }

  push(chunk: Buffer): void {
    if (chunk.length === 0) throw new Error('an empty piece of a body');
    this.body += chunk.toString('latin1');
  }

  end(trailers: RawHeaders): void {
    if (this.result === 'whole') throw new Error('a second end');
    this.trailers = trailers;
    this.result = 'whole';
  }
}

/** Takes what the gateway's reader has read so far. */
class GatewayRecording extends Recording {
  #response: UpstreamResponse | undefined;

  override onHead(response: UpstreamResponse): void {
    super.onHead(response);
    this.#response = response;
  }

  take(): void {
    if (this.#response === undefined) return;
    for (const piece of this.#response.take()) this.push(piece);
    if (this.#response.isWhole && this.result !== 'whole') this.end(this.#response.trailers);
  }
}

const SOURCE: ResponseSource = { pause() {}, resume() {}, abandon() {} };

/**
 * Reads a response with the gateway's reader, in pieces that end at these places.
 * @param ends true if the connection ends after the bytes
 * @throws any error that is not `upstream-protocol`
 */
export function readWithGateway(
  bytes: string,
  { method = 'GET', cuts = [], ends = false }: { method?: string; cuts?: readonly number[]; ends?: boolean },
): Reading {
  const input = Buffer.from(bytes, 'latin1');
  const recording = new GatewayRecording();
  const reader = new ResponseReader(SOURCE);
  reader.begin(method, recording);
  try {
    let at = 0;
    for (const cut of [...cuts.toSorted((a, b) => a - b), input.length]) {
      if (cut <= at && cut !== input.length) continue;
      // The pool reads nothing on a connection whose response has ended: it closes it.
      if (cut > at && recording.result === 'whole') reader.stop();
      reader.read(input.subarray(at, cut));
      recording.take();
      at = cut;
    }
    if (ends && recording.result !== 'whole') reader.end();
    recording.take();
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== 'upstream-protocol') throw error;
    recording.take();
    recording.result = 'refused';
  }
  recording.isPersistent = recording.result === 'whole' && reader.isPersistent;
  return { ...recording };
}

/** Node's own parser (llhttp), which node:http uses. */
export interface NodeParser {
  [callback: number]: (...args: never[]) => number | undefined;
  initialize(type: number, resource: object, maxHeaderSize: number, lenient: number): void;
  execute(bytes: Buffer): number | Error;
  finish(): number | Error | undefined;
  close(): void;
}

interface NodeParserClass {
  new (): NodeParser;
  readonly REQUEST: number;
  readonly RESPONSE: number;
  readonly kOnHeaders: number;
  readonly kOnHeadersComplete: number;
  readonly kOnBody: number;
  readonly kOnMessageComplete: number;
  readonly kLenientNone: number;
}

export const { HTTPParser }: { HTTPParser: NodeParserClass } = createRequire(import.meta.url)(
  'node:_http_common',
);

/** Reads a response with Node's own parser, as strict as it can be. */
export function readWithNode(
  bytes: string,
  { method = 'GET', ends = false }: { method?: string; ends?: boolean },
): Reading {
  const recording = new Recording();
  let pending: string[] = [];
  let status = 0;
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.RESPONSE, {}, 10_000_000, HTTPParser.kLenientNone);
  parser[HTTPParser.kOnHeaders] = (fields: string[]) => {
    pending.push(...fields);
    return 0;
  };
  parser[HTTPParser.kOnHeadersComplete] = (...args: unknown[]) => {
    const [, , fields = [], , , code, reason, , isPersistent] = args as [
      ...[number, number, string[] | undefined, unknown, unknown, number, string, boolean, boolean],
    ];
    if (recording.result === 'whole') return 0;
    const headers = [...pending, ...fields];
    pending = [];
    status = code;
    if (status >= 200) {
      recording.onHead({ status, reason, headers });
      recording.isPersistent = isPersistent;
    } else if (status !== 100) {
      recording.onInformation(status, headers);
    }
    // As Node's client does: no body follows.
    return method === 'HEAD' || status < 200 ? 1 : 0;
  };
  parser[HTTPParser.kOnBody] = (chunk: Buffer) => {
    if (recording.result !== 'whole') recording.push(chunk);
    return 0;
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    if (status >= 200 && recording.result !== 'whole') recording.end(pending);
    pending = [];
    return 0;
  };
  const read = parser.execute(Buffer.from(bytes, 'latin1'));
  const end = read instanceof Error || !ends ? undefined : parser.finish();
  // Node.js frees no parser by itself: it and all that it has read would stay.
  parser.close();
  if (recording.result !== 'whole' && (read instanceof Error || end instanceof Error)) {
    recording.result = 'refused';
  }
  return { ...recording };
}
