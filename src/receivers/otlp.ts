import type { Agent, Dispatcher } from 'undici';
import { errorCode, messageOf } from '../base/error-code.ts';
import type { Secret } from '../base/secret.ts';
import type { ReceiverTls } from './connections.ts';
import { agentFor, askedWait, loadUndici, RetryLater } from './connections.ts';

/** Bytes of a response up to which it is read. */
const LONGEST_RESPONSE = 64 * 1024;
/** The statuses after which the specification lets a client try again. */
const RETRYABLE = [429, 502, 503, 504];

/** The name of the service and of the instrumentation scope. */
export const SERVICE = 'digest-gateway';

/** A receiver of OTLP over HTTP. */
export interface OtlpReceiver {
  /** The whole URL, with its path. */
  readonly endpoint: string;
  /** Fields of each request. */
  readonly headers: ReadonlyMap<string, Secret>;
  readonly tls: ReceiverTls | undefined;
}

/** Sends requests of OTLP over HTTP, in the JSON encoding, to one receiver. */
export class OtlpClient {
  readonly #receiver: OtlpReceiver;
  readonly #agent: Agent;

  constructor(receiver: OtlpReceiver) {
    this.#receiver = receiver;
    this.#agent = agentFor(receiver.tls);
  }

  /**
   * Resolves when the receiver has confirmed the request, to the number of log records that it refused for good.
   * @throws RetryLater if the receiver says when to try again
   * @throws Error with a reason that holds no secret
   */
  async send(body: string, signal: AbortSignal): Promise<number> {
    const response = await this.#post(body, signal);
    const { statusCode } = response;
    const text = await this.#read(response, signal);
    if (statusCode >= 200 && statusCode < 300) {
      const rejected = rejectedIn(text);
      if (rejected === undefined) throw this.#failed(`status ${statusCode} without a response of OTLP`);
      return rejected;
    }
    const failed = this.#failed(`status ${statusCode}`);
    const wait = RETRYABLE.includes(statusCode) ? askedWait(response) : undefined;
    throw wait === undefined ? failed : new RetryLater(failed.message, wait);
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #post(body: string, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const { endpoint, headers } = this.#receiver;
    const secrets = Array.from(headers, ([name, secret]) => [name, secret.reveal()] as const);
    try {
      return await loadUndici().request(endpoint, {
        method: 'POST',
        headers: { ...Object.fromEntries(secrets), 'content-type': 'application/json' },
        body,
        signal,
        dispatcher: this.#agent,
      });
    } catch (error) {
      throw this.#failed(errorCode(error) || messageOf(error), error);
    }
  }

  async #read({ body }: Dispatcher.ResponseData, signal: AbortSignal): Promise<string> {
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of body) {
        size += (chunk as Buffer).length;
        if (size > LONGEST_RESPONSE) throw new Error('the response is too long');
        chunks.push(chunk as Buffer);
      }
    } catch (error) {
      signal.throwIfAborted();
      throw this.#failed(errorCode(error) || messageOf(error), error);
    }
    return Buffer.concat(chunks).toString();
  }

  /** The response is not quoted: it may repeat the request. */
  #failed(reason: string, cause?: unknown): Error {
    return new Error(`${new URL(this.#receiver.endpoint).host}: ${reason}`, { cause });
  }
}

/** The number of log records that the receiver refused for good; undefined: this is no response of OTLP. */
function rejectedIn(text: string): number | undefined {
  if (text === '') return 0;
  try {
    const response = JSON.parse(text);
    if (typeof response !== 'object' || response === null || Array.isArray(response)) return undefined;
    const rejected = Number(response.partialSuccess?.rejectedLogRecords ?? 0);
    return Number.isSafeInteger(rejected) && rejected >= 0 ? rejected : undefined;
  } catch {
    return undefined;
  }
}
