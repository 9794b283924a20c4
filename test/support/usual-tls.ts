import type { UpstreamTls } from '../../src/transport/upstream-tls.ts';

/** The TLS settings of an upstream that a configuration says nothing of. */
export const USUAL_TLS: UpstreamTls = {
  ca: undefined,
  minVersion: 'TLSv1.2',
  serverName: undefined,
  pins: [],
  clientCertificate: undefined,
};
