import type { Readable } from 'node:stream';
import type { Cancellation } from '../base/cancellation.ts';
import { GatewayError } from '../base/errors.ts';
import { type ClientState, PerClient } from '../base/per-client.ts';
import { NO_BODY, type RequestBody } from '../handshake/exchange.ts';
import { PIECE_OVERHEAD } from '../http1/body-reader.ts';

/** A body that was received, with the memory that it takes. */
export type ReceivedBody =
  | typeof NO_BODY
  | (Extract<RequestBody, { kind: 'kept' }> & { readonly memory: BodyShare })
  | (Extract<RequestBody, { kind: 'streamed' }> & {
      readonly progress: BodyProgress;
      /** Memory of its first bytes until they have been sent; undefined: nothing was kept. */
      readonly memory?: BodyShare;
    });

/** Tells a slow client from a slow upstream. */
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
  /** The client sends nothing before it gets `100 Continue`, which `open` sends. */
  readonly expectsContinue: boolean;
  /** Begins to read; called once, when somebody is ready to take the bytes. */
  open(): Readable;
  /** Bytes of chunk framing that have come so far. */
  framing(): number;
  /** Called with the number of bytes read, and that of their chunk framing. */
  readonly onBytes: (count: number, framing: number) => void;
}

/** The memory that the bodies of one client take, in bytes. */
class ClientUse implements ClientState {
  bytes = 0;

  get isUnused(): boolean {
    return this.bytes === 0;
  }
}

/**
 * The memory that all kept bodies of this process share, in bytes. Bodies that are still being received count. A client
 * can take as much as it leaves free: alone half of it, so that its slow uploads leave room for others.
 */
export class BodyMemory {
  readonly #limit: number;
  readonly #clients = new PerClient(() => new ClientUse());
  #used = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get used(): number {
    return this.#used;
  }

  use(client: string): ClientUse {
    return this.#clients.of(client);
  }

  /** Takes so much, or nothing if that would be more than this client may. */
  take(use: ClientUse, bytes: number): boolean {
    if (use.bytes + bytes > this.#limit - this.#used - bytes) return false;
    use.bytes += bytes;
    this.#used += bytes;
    return true;
  }

  give(use: ClientUse, bytes: number): void {
    use.bytes -= bytes;
    this.#used -= bytes;
  }
}

/** The part of one body. */
export class BodyShare {
  readonly #memory: BodyMemory;
  readonly #use: ClientUse;
  #taken = 0;
  #released = false;

  constructor(memory: BodyMemory, client: string) {
    this.#memory = memory;
    this.#use = memory.use(client);
  }

  /** Takes memory for this piece; false: there is none left. */
  keep(piece: Buffer): boolean {
    const size = piece.length + PIECE_OVERHEAD;
    if (this.#released || !this.#memory.take(this.#use, size)) return false;
    this.#taken += size;
    return true;
  }

  /** Gives all of it back; can be called again. */
  release(): void {
    this.#released = true;
    this.#memory.give(this.#use, this.#taken);
    this.#taken = 0;
  }
}

/**
 * Takes a client's body. Resolves once a small one is there whole, or a large one is known to be large and has begun, or
 * there is no memory to keep more of it. The caller releases its memory when the body is not needed any more.
 * @throws GatewayError `body-too-large` beyond `max` and `client-closed` when the client breaks off, here or while the
 *   body streams; the reason of the cancellation if that comes first
 */
export function receiveBody(
  source: BodySource | undefined,
  limits: BodyLimits,
  memory: BodyMemory,
  client: string,
  cancellation: Cancellation,
): Promise<ReceivedBody> | ReceivedBody {
  if (source === undefined || source.length === 0) return NO_BODY;
  const declared = source.length ?? 0;
  if (declared > limits.max) throw tooLarge(limits.max, 'body');
  const progress = { awaitsClient: true };
  const chunks = bounded(source, limits.max, progress);
  if (declared > limits.replayUpTo) {
    const content = new StreamedContent(chunks);
    const body: ReceivedBody = { kind: 'streamed', content, progress, spilled: false };
    // Otherwise it would hold a connection meanwhile, until the upstream closes that.
    return source.expectsContinue
      ? body
      : unlessCancelled(
          content.begun().then(() => body),
          cancellation,
        );
  }
  const share = new BodyShare(memory, client);
  return unlessCancelled(keepOrStream(chunks, progress, limits.replayUpTo, share), cancellation, share);
}

/** Does what `receiving` does, unless the cancellation comes first. The memory is released if there is no body. */
function unlessCancelled(
  receiving: Promise<ReceivedBody>,
  cancellation: Cancellation,
  memory?: BodyShare,
): Promise<ReceivedBody> {
  return new Promise((resolve, reject) => {
    const work = {
      cancel: (error: unknown): void => {
        cancellation.remove(work);
        memory?.release();
        reject(error);
      },
    };
    cancellation.add(work);
    receiving.then((body) => {
      cancellation.remove(work);
      resolve(body);
    }, work.cancel);
  });
}

async function keepOrStream(
  chunks: AsyncGenerator<Buffer, void>,
  progress: BodyProgress,
  replayUpTo: number,
  memory: BodyShare,
): Promise<ReceivedBody> {
  const start: Buffer[] = [];
  let size = 0;
  let spilled = false;
  while (size <= replayUpTo && !spilled) {
    const next = await chunks.next();
    if (next.done === true) return size === 0 ? NO_BODY : { kind: 'kept', content: joined(start), memory };
    start.push(next.value);
    size += next.value.length;
    spilled = !memory.keep(next.value);
  }
  const content = new StreamedContent(resumed(start, chunks, memory));
  return { kind: 'streamed', content, progress, memory, spilled };
}

/**
 * A body that is read once, though several attempts may wait for its first piece: the connection of one may end before
 * that has come. Each gets it, and only one is left to send it.
 */
class StreamedContent implements AsyncIterable<Buffer> {
  readonly #pieces: AsyncIterator<Buffer, void>;
  /** Undefined: nobody has asked for it, or it has been sent. */
  #first: Promise<IteratorResult<Buffer, void>> | undefined;

  constructor(pieces: AsyncIterator<Buffer, void>) {
    this.#pieces = pieces;
  }

  /** Resolves once its first piece has come, or its end. */
  begun(): Promise<unknown> {
    this.#first ??= this.#pieces.next();
    return this.#first;
  }

  /** An attempt that stops does not end the body: another one may wait for its first piece. */
  [Symbol.asyncIterator](): AsyncIterator<Buffer, void> {
    let hasFirst = false;
    const next = (): Promise<IteratorResult<Buffer, void>> => {
      if (hasFirst) {
        this.#first = undefined;
        return this.#pieces.next();
      }
      hasFirst = true;
      this.#first ??= this.#pieces.next();
      return this.#first;
    };
    return { next };
  }
}

async function* bounded(
  source: BodySource,
  max: number,
  progress: BodyProgress,
): AsyncGenerator<Buffer, void> {
  let size = 0;
  let framing = 0;
  // The source is the client's connection: an upstream that answers early must not destroy it.
  const chunks: AsyncIterable<Buffer> = source.open().iterator({ destroyOnReturn: false });
  try {
    for await (const chunk of chunks) {
      progress.awaitsClient = false;
      size += chunk.length;
      const framingBefore = framing;
      framing = source.framing();
      source.onBytes(chunk.length, framing - framingBefore);
      if (size > max) throw tooLarge(max, 'body');
      if (framing > max) throw tooLarge(max, 'framing of the chunks of the body');
      yield chunk;
      progress.awaitsClient = true;
    }
    progress.awaitsClient = false;
  } catch (error) {
    // Its code, as ECONNRESET, would be taken for one of the upstream's connection.
    throw progress.awaitsClient ? clientGone(error) : error;
  }
}

async function* resumed(
  start: Buffer[],
  rest: AsyncIterable<Buffer>,
  memory: BodyShare,
): AsyncGenerator<Buffer, void> {
  yield* start.splice(0);
  memory.release();
  yield* rest;
}

function joined(chunks: Buffer[]): Buffer {
  const [only] = chunks;
  return only !== undefined && chunks.length === 1 ? only : Buffer.concat(chunks);
}

function clientGone(cause: unknown): GatewayError {
  return new GatewayError('client-closed', 'The client closed the connection.', cause);
}

function tooLarge(max: number, what: string): GatewayError {
  return new GatewayError(
    'body-too-large',
    `The ${what} is larger than the ${max} bytes that this deployment accepts (body.max).`,
  );
}
