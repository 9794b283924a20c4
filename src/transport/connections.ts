import { type Dispatcher, Pool } from 'undici';
import type { Clock } from '../base/clock.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import type { Exchange } from '../handshake/exchange.ts';
import { Connection } from './connection.ts';
import { connector } from './connector.ts';
import { type Egress, isOnThisHost } from './egress.ts';
import { exchange } from './exchange.ts';
import { MAX_HEAD_BYTES } from './response-heads.ts';
import type { TlsSeen, UpstreamTls } from './upstream-tls.ts';

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
  readonly tls: UpstreamTls;
  readonly egress: Egress;
}

/** Kept-alive connections to one upstream. */
export class Connections {
  readonly #pool: Pool;
  readonly #egress: Egress;
  #proxyCredential: Credential | undefined;
  #tlsSeen: TlsSeen | undefined;

  constructor(options: ConnectionOptions, clock: Clock) {
    const { origin, timeouts, tls, egress } = options;
    this.#egress = egress;
    const connect = connector(
      { origin, tls, egress, timeout: timeouts.connect },
      {
        clock,
        proxyCredential: () => this.#proxyCredential,
        onTls: (seen) => {
          this.#tlsSeen = seen;
        },
      },
    );
    this.#pool = new Pool(origin, {
      factory: (url, settings) => new Connection(url, settings, connect),
      connections: options.connections,
      pipelining: 1,
      // One connection carries one request at a time: what an upstream refuses or resets then hits
      // one client only.
      allowH2: false,
      headersTimeout: timeouts.response,
      bodyTimeout: timeouts.idle,
      // Bounds trailers; the bytes of a head are bounded before undici sees them.
      maxHeaderSize: MAX_HEAD_BYTES,
    });
  }

  /** Sends a request over one of the connections. */
  readonly exchange: Exchange = (request, handler) => exchange(this.#pool, request, handler);

  get dispatcher(): Dispatcher {
    return this.#pool;
  }

  /** Connections, and requests on them or waiting for one. */
  get stats(): Pool['stats'] {
    return this.#pool.stats;
  }

  /** Observations of the last full TLS handshake; undefined: there was none yet. */
  get tlsSeen(): TlsSeen | undefined {
    return this.#tlsSeen;
  }

  /** True if this host has the address that connections leave from; undefined: none is configured. */
  async hasEgressAddress(): Promise<boolean | undefined> {
    const { localAddress } = this.#egress;
    return localAddress === undefined ? undefined : isOnThisHost(localAddress);
  }

  /** Takes over the versions that the sources of a credential hold now, if it is the proxy's. */
  offer({ name, current }: CredentialSet): void {
    if (name === this.#egress.proxy?.credential) this.#proxyCredential = current;
  }

  /** Resolves when the requests under way are done. */
  close(): Promise<void> {
    return this.#pool.close();
  }
}
