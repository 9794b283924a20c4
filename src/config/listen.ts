import { z } from 'zod';
import { isMapping } from '../base/json.ts';
import type { Path } from './issues.ts';
import { keyFile } from './secret-source.ts';
import {
  bindAddress,
  clientHost,
  duration,
  fileMode,
  fileName,
  listOf,
  network,
  oneOf,
  port,
  SECTION,
  section,
  size,
  whole,
} from './value-schemas.ts';

/** Schema of a plane's address and port. */
export const listener = (defaultPort: number) => ({
  address: bindAddress()
    .default('127.0.0.1')
    .describe(
      'The address that it listens on, or `unix:` and the path of a UNIX socket, which counts as loopback. The folder of the socket must exist. The file of an ended process is replaced.',
    ),
  port: port()
    .default(defaultPort)
    .describe('The port that it listens on; 0 takes any free port. It means nothing for a UNIX socket.'),
  socketMode: fileMode()
    .default('0660')
    .describe(
      'The permissions of the file of a UNIX socket, in quotes: who may write to it may connect. By default that is the user of the process, and its group.',
    ),
});

/** Schema of the TLS of a listener. */
export const listenTls = () =>
  section({
    certFile: fileName().describe(
      'PEM: the certificate of the listener, then those between it and its authority. Others may read the file, not write it.',
    ),
    keyFile: keyFile().describe(
      'PEM: the private key of the certificate. Only its user, root and the group may read the file, unless `readableByOthers` is true.',
    ),
    clientCaFile: fileName()
      .exactOptional()
      .describe(
        'PEM: the authority that has to have signed the certificates of clients. With it clients are asked for a certificate, which counts until it ends, and TLS sessions are not resumed.',
      ),
    crlFile: fileName()
      .exactOptional()
      .describe(
        'PEM: the lists of certificates that the authorities have revoked, one for each authority in `clientCaFile`. A client with a revoked certificate gets 401, and so does one with any certificate of an authority whose list has expired. Each change of the file closes open connections after their current response.',
      ),
    minVersion: oneOf(['TLSv1.2', 'TLSv1.3'])
      .default('TLSv1.2')
      .describe('The oldest version of TLS that is accepted.'),
  });

const limits = () =>
  section({
    headerSize: size()
      .refine((bytes) => bytes >= 1024 && bytes <= 2 ** 20, {
        error: ({ input }) => `is ${input}B: give a size from 1KiB to 1MiB`,
      })
      .default(16 * 1024)
      .describe('The most bytes of request line and headers together.'),
    headersTimeout: duration()
      .default(10_000)
      .describe('How long the TLS handshake may take, and how long the headers of a request.'),
    keepAliveTimeout: duration().default(5_000).describe('How long a connection waits for its next request.'),
    connections: whole(1, 1_000_000)
      .default(10_000)
      .describe(
        'The most connections of all clients. A process uses three quarters of the files that it may open (`ulimit -n`, `LimitNOFILE`) for them at most.',
      ),
    connectionsPerAddress: whole(1, 1_000_000)
      .default(1_000)
      .describe(
        'The most connections of one address. A /64 of IPv6 may have half of `connections`, or as many as one address if that is more. Trusted proxies and UNIX sockets have no such limit.',
      ),
    bodyMemory: size()
      .default(64 * 2 ** 20)
      .describe(
        'The most memory for all request bodies that are kept for a second attempt. A client alone may take half of it; with others, half of what they leave. Further bodies are streamed: their challenge is requested first, and they cannot be sent again.',
      ),
  });

const listenSchema = () =>
  section({
    ...listener(8080),
    tls: listenTls()
      .exactOptional()
      .describe(
        'TLS for clients. The files are read again when they change and on SIGHUP; open connections stay, unless an authority was removed from `clientCaFile`, or `crlFile` changed. If one was added, connections whose certificate was not accepted, or that have none, end after their next response.',
      ),
    hosts: listOf(clientHost(), 'a list of at least one name, such as [gateway.internal]')
      .exactOptional()
      .describe(
        'The host names by which clients may call the gateway; the hosts of deployments are added. Any other `Host` gets 421, which prevents DNS rebinding. Without it any host is accepted.',
      ),
    proxyProtocol: listOf(network(), 'a list of at least one network, such as [10.0.0.7]')
      .default([])
      .describe(
        'Load balancers that begin each connection with a header of the PROXY protocol (version 1 or 2), before TLS. The client has the address of the header. A connection of theirs without a valid header is closed; from all others a header is a malformed request.',
      ),
    trustedProxies: listOf(network(), 'a list of at least one network, such as [10.0.0.7]')
      .default([])
      .describe(
        'Proxies whose `forwardedHeader` is believed. The client is the last address in it that is not a trusted proxy. A request of theirs without a valid one has no address.',
      ),
    forwardedHeader: oneOf(['X-Forwarded-For', 'Forwarded'])
      .default('X-Forwarded-For')
      .describe('The header in which trusted proxies name the client. The other one is never read.'),
    limits: limits().prefault({}).describe('Limits of connections and memory on the data plane.'),
  });

/** One address of the data plane with its settings. */
export type Listen = z.output<ReturnType<typeof listenSchema>>;

/** Keys that hold for the whole gateway: a listener without one has that of the first listener that has it. */
export const SHARED_KEYS = ['trustedProxies', 'forwardedHeader', 'limits'] as const;

const LISTENERS = `${SECTION}, or a list of at least one such mapping`;

/** Schema of the data plane: one listener or a list; the output is a list. */
export const listenersSchema = () =>
  z
    .preprocess(
      (written) => (isMapping(written) ? [written] : withSharedKeys(written)),
      z.array(listenSchema(), { error: LISTENERS }).nonempty({ error: LISTENERS }),
    )
    .meta({ orOne: true });

/** Returns written listeners with the keys that they share; one mapping, or an invalid value, stays as it is. */
export function withSharedKeys(written: unknown): unknown {
  if (!Array.isArray(written)) return written;
  const shared: Record<string, unknown> = {};
  for (const key of SHARED_KEYS) {
    const owner = written.find((listener) => isMapping(listener) && Object.hasOwn(listener, key));
    if (owner !== undefined) shared[key] = owner[key];
  }
  // The keys stay in the order in which they are written.
  return written.map((listener) =>
    isMapping(listener) ? { ...listener, ...shared, ...listener } : listener,
  );
}

/** Returns the path of listener `index` for messages: a single one needs no index. */
export function listenerPath(listeners: readonly unknown[], index: number): Path {
  return listeners.length === 1 ? ['listen'] : ['listen', index];
}

/** Returns a path into the checked configuration as it is in the file. `isList`: `listen` is a list there. */
export function writtenPath(path: Path, isList: boolean): Path {
  const [section, index, ...below] = path;
  return section === 'listen' && typeof index === 'number' && !isList ? [section, ...below] : path;
}

/** The settings that hold for all listeners. */
export function sharedSettings([first]: readonly Listen[]): Pick<Listen, (typeof SHARED_KEYS)[number]> {
  if (first === undefined) throw new TypeError('a gateway has at least one listener');
  return first;
}
