import type { SecureVersion } from 'node:tls';
import type { Agent, Dispatcher } from 'undici';
import { errorCode, messageOf } from '../../base/error-code.ts';
import type { Secret } from '../../base/secret.ts';
import { loadUndici } from '../../base/undici.ts';

/** A receiver refused, and says when to try again. */
export class RetryLater extends Error {
  /** In milliseconds. */
  readonly after: number;

  constructor(message: string, after: number) {
    super(message);
    this.after = after;
  }
}

/** A receiver has refused for good what it got. It is sent again, but somebody has to look into it. */
export class Rejected extends Error {
  override readonly name = 'Rejected';
}

/** Bytes of a response up to which it is read. */
const MAX_RESPONSE = 64 * 1024;

/** A response of a receiver. */
export interface ReceiverResponse extends Pick<Dispatcher.ResponseData, 'statusCode' | 'headers'> {
  readonly body: Buffer;
}

/** A receiver that takes what it gets by POST. Its errors name the host, and quote nothing of a response. */
export class HttpReceiver {
  readonly #url: string;
  readonly #agent: Agent;

  constructor(url: string, tls: ReceiverTls | undefined) {
    this.#url = url;
    this.#agent = agentFor(tls);
  }

  /** Sends a body and reads the response. @throws Error */
  async post(
    headers: Readonly<Record<string, string>>,
    body: string | Buffer,
    signal: AbortSignal,
  ): Promise<ReceiverResponse> {
    try {
      const request = { method: 'POST', headers, body, signal, dispatcher: this.#agent } as const;
      const response = await loadUndici().request(this.#url, request);
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of response.body) {
        size += (chunk as Buffer).length;
        if (size > MAX_RESPONSE) throw new Error('the response is too long');
        chunks.push(chunk as Buffer);
      }
      return { statusCode: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) };
    } catch (error) {
      signal.throwIfAborted();
      throw this.error(errorCode(error) || messageOf(error), error);
    }
  }

  /** The error of a status that confirms nothing. */
  unexpected(response: ReceiverResponse): Error {
    const failed = this.error(`status ${response.statusCode}`);
    const wait = askedWait(response);
    return wait === undefined ? failed : new RetryLater(failed.message, wait);
  }

  error(reason: string, cause?: unknown): Error {
    return new Error(`${new URL(this.#url).host}: ${reason}`, { cause });
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** HTTP connections to one receiver. The signal of a request is its deadline. */
export function agentFor(tls: ReceiverTls | undefined): Agent {
  const { Agent } = loadUndici();
  return new Agent({ connect: secureOptions(tls), headersTimeout: 0, bodyTimeout: 0, connections: 2 });
}

/** The statuses after which the specification of OTLP lets a client try again. */
const RETRYABLE = [429, 502, 503, 504];

/** The wait in milliseconds that the receiver asks for in seconds; undefined: none. */
export function askedWait({ statusCode, headers }: Omit<ReceiverResponse, 'body'>): number | undefined {
  const seconds = Number(headers['retry-after']);
  return RETRYABLE.includes(statusCode) && seconds > 0 ? seconds * 1000 : undefined;
}

/** TLS towards a receiver, whose certificate is always verified. */
export interface ReceiverTls {
  /** PEM: the authorities to trust instead of those that Node.js has. */
  readonly ca?: string | undefined;
  /** PEM: the certificate that the gateway shows, with its private key. */
  readonly client?: { readonly chain: string; readonly key: Secret } | undefined;
}

/** The options of Node's TLS for a receiver. */
export function secureOptions({ ca, client }: ReceiverTls = {}) {
  const minVersion: SecureVersion = 'TLSv1.2';
  return {
    ...(ca !== undefined && { ca }),
    ...(client && { cert: client.chain, key: client.key.reveal() }),
    minVersion,
  };
}
