import type { SecureVersion } from 'node:tls';
import type { Secret } from '../base/secret.ts';

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
