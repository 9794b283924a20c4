import type { SecureVersion } from 'node:tls';
import type { SinkTls } from './options.ts';

/** The options of Node's TLS for a receiver. */
export function secureOptions({ ca, client }: SinkTls = {}) {
  const minVersion: SecureVersion = 'TLSv1.2';
  return {
    ...(ca !== undefined && { ca }),
    ...(client && { cert: client.chain, key: client.key.reveal() }),
    minVersion,
  };
}
