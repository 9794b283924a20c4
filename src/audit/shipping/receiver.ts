import type { SecureVersion } from 'node:tls';
import type { Agent, Dispatcher } from 'undici';
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
