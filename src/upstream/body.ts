import type { Readable } from 'node:stream';
import type { Cancellation } from '../base/cancellation.ts';
import { GatewayError } from '../base/errors.ts';

/**
 * A request's body on its way to the upstream: none; kept in memory, so that it can be sent again
 * after a 401; or streamed, once only.
 */
export type RequestBody =
  | { readonly kind: 'none' }
  | { readonly kind: 'kept'; readonly bytes: Buffer }
  | { readonly kind: 'streamed'; readonly chunks: AsyncIterable<Buffer>; readonly progress: BodyProgress };

/** Who a body waits for: the client to send more, or the upstream to take more. */
export interface BodyProgress {
  awaitsClient: boolean;
}

export interface BodyLimits {
  /** Largest body that is kept, in bytes. */
  readonly replayUpTo: number;
  /** Largest body that is accepted, in bytes. */
  readonly max: number;
}

/** A client's body that has not been read yet. */
export interface BodySource {
  /** Content-Length; undefined: chunked, of unknown length. */
  readonly length: number | undefined;
  /** Begins to read; called once, when somebody is ready to take the bytes. */
  open(): Readable;
  /** Told of the bytes as they are read. */
  readonly onBytes: (count: number) => void;
}

export const NO_BODY: RequestBody = { kind: 'none' };

/**
 * Takes a client's body. Resolves once a small one is there whole, or a large one is known to be large.
 * @throws GatewayError `body-too-large` beyond `max`, here or while the body streams; the reason
 *   of the cancellation if that comes first
 */
export function receiveBody(
  source: BodySource | undefined,
  limits: BodyLimits,
  cancellation: Cancellation,
): Promise<RequestBody> | RequestBody {
  if (source === undefined || source.length === 0) return NO_BODY;
  const declared = source.length ?? 0;
  if (declared > limits.max) throw tooLarge(limits.max);
  const progress = { awaitsClient: true };
  const chunks = bounded(source, limits.max, progress);
  if (declared > limits.replayUpTo) return { kind: 'streamed', chunks, progress };
  return new Promise((resolve, reject) => {
    cancellation.onCancel(reject);
    keepOrStream(chunks, progress, limits.replayUpTo).then(resolve, reject);
  });
}

async function keepOrStream(
  chunks: AsyncGenerator<Buffer, void>,
  progress: BodyProgress,
  replayUpTo: number,
): Promise<RequestBody> {
  const start: Buffer[] = [];
  let size = 0;
  while (size <= replayUpTo) {
    const next = await chunks.next();
    if (next.done === true) return size === 0 ? NO_BODY : { kind: 'kept', bytes: joined(start) };
    start.push(next.value);
    size += next.value.length;
  }
  return { kind: 'streamed', chunks: resumed(start, chunks), progress };
}

async function* bounded(
  source: BodySource,
  max: number,
  progress: BodyProgress,
): AsyncGenerator<Buffer, void> {
  let size = 0;
  // The source is the client's connection: an upstream that answers early must not destroy it.
  const chunks: AsyncIterable<Buffer> = source.open().iterator({ destroyOnReturn: false });
  for await (const chunk of chunks) {
    size += chunk.length;
    source.onBytes(chunk.length);
    if (size > max) throw tooLarge(max);
    progress.awaitsClient = false;
    yield chunk;
    progress.awaitsClient = true;
  }
  progress.awaitsClient = false;
}

async function* resumed(start: Buffer[], rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  yield* start.splice(0);
  yield* rest;
}

function joined(chunks: Buffer[]): Buffer {
  const [only] = chunks;
  return only !== undefined && chunks.length === 1 ? only : Buffer.concat(chunks);
}

function tooLarge(max: number): GatewayError {
  return new GatewayError(
    'body-too-large',
    `The body is larger than the ${max} bytes that this deployment accepts (body.max).`,
  );
}
