import { createSocket } from 'node:dgram';
import { isIPv6 } from 'node:net';
import { errorCode } from '../base/error-code.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { LACKING } from './errors.ts';

/** A forward proxy. */
export interface ProxyOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly origin: string;
  /** The name of its credential; undefined: it does not ask for any. */
  readonly credential: string | undefined;
  /** Algorithms that may answer Digest. */
  readonly algorithms: readonly AlgorithmName[];
  /** True if a challenge may be answered where others can listen: without TLS, to another machine. */
  readonly allowPlaintext: boolean;
  /** PEM of the authorities to trust instead of the system's. */
  readonly ca: string | undefined;
}

/** How connections to an upstream leave. */
export interface Egress {
  /** The address that they leave from; undefined: the one that the system chooses. */
  readonly localAddress: string | undefined;
  /** Forward proxy; undefined: none. */
  readonly proxy: ProxyOptions | undefined;
}

/** Where the upstream sees its requests come from, as far as it is known: a nonce may be bound to it. */
export function egressAddress({ localAddress = '', proxy }: Egress): string {
  return proxy?.origin ?? localAddress;
}

/** For `net.connect`: the address, and names looked up for its family only. */
export function leavingFrom(localAddress: string | undefined): { localAddress?: string; family?: 4 | 6 } {
  return localAddress === undefined ? {} : { localAddress, family: isIPv6(localAddress) ? 6 : 4 };
}

/**
 * True if a socket of this host can have the address; undefined: this process has no file for one, so it is not known.
 * The list of interfaces does not show it: all of 127.0.0.0/8 can be used, and one address of it is listed.
 */
export function isOnThisHost(address: string): Promise<boolean | undefined> {
  return new Promise((resolve) => {
    const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
    const end = (isThere: boolean | undefined): void => {
      socket.close();
      resolve(isThere);
    };
    socket
      .once('error', (error) => end(LACKING.has(errorCode(error)) ? undefined : false))
      .bind({ port: 0, address, exclusive: true }, () => end(true));
  });
}
