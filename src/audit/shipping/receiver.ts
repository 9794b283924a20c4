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

/**
 * Sends a body and reads the response.
 * @throws Error that names the host, and quotes nothing of the response
 */
export async function post(
  url: string,
  request: Pick<Dispatcher.RequestOptions, 'headers' | 'body'> & {
    readonly dispatcher: Agent;
    readonly signal: AbortSignal;
  },
): Promise<ReceiverResponse> {
  try {
    const { statusCode, headers, body } = await loadUndici().request(url, { ...request, method: 'POST' });
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body) {
      size += (chunk as Buffer).length;
      if (size > MAX_RESPONSE) throw new Error('the response is too long');
      chunks.push(chunk as Buffer);
    }
    return { statusCode, headers, body: Buffer.concat(chunks) };
  } catch (error) {
    request.signal.throwIfAborted();
    throw new Error(`${new URL(url).host}: ${errorCode(error) || messageOf(error)}`, { cause: error });
  }
}

/** HTTP connections to one receiver. The signal of a request is its deadline. */
export function agentFor(tls: ReceiverTls | undefined): Agent {
  const { Agent } = loadUndici();
  return new Agent({ connect: secureOptions(tls), headersTimeout: 0, bodyTimeout: 0, connections: 2 });
}

/** The wait in milliseconds that the receiver asks for in seconds; undefined: none. */
export function askedWait({ headers }: Pick<Dispatcher.ResponseData, 'headers'>): number | undefined {
  const seconds = Number(headers['retry-after']);
  return seconds > 0 ? seconds * 1000 : undefined;
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
