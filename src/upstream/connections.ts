import { Pool } from 'undici';

export interface ConnectionOptions {
  /** `https://host:port`. */
  readonly origin: string;
  /** At most so many connections at a time. */
  readonly connections: number;
  /** Milliseconds. */
  readonly timeouts: {
    readonly connect: number;
    /** From the last byte of the request to the head of the answer. */
    readonly response: number;
    /** Between two pieces of the answer's body. */
    readonly idle: number;
  };
  readonly tls: {
    /** PEM of the authorities to trust in place of the system's; undefined: the system's. */
    readonly ca: string | undefined;
    readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  };
}

/** Kept-alive connections to one upstream. */
export function openConnections(options: ConnectionOptions): Pool {
  const { timeouts, tls } = options;
  return new Pool(options.origin, {
    connections: options.connections,
    pipelining: 1,
    // One connection carries one request at a time: what an upstream refuses or resets then hits
    // one client only.
    allowH2: false,
    headersTimeout: timeouts.response,
    bodyTimeout: timeouts.idle,
    connect: {
      timeout: timeouts.connect,
      minVersion: tls.minVersion,
      rejectUnauthorized: true,
      ...(tls.ca === undefined ? {} : { ca: tls.ca }),
    },
  });
}
