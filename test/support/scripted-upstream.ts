import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { KeyPair } from '../../src/simulator/certificates.ts';

export interface ScriptedUpstream extends AsyncDisposable {
  /** `http://127.0.0.1:PORT`, for which a deployment needs `tls.allowPlaintext`; with a key pair `https:`. */
  readonly origin: string;
  close(): Promise<void>;
}

/** An upstream that does exactly what a test says, where the simulator is too well-behaved. */
export async function startUpstream(listener: RequestListener, pair?: KeyPair): Promise<ScriptedUpstream> {
  const server = pair === undefined ? createServer(listener) : createTlsServer(pair, listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  };
  return {
    origin: `${pair === undefined ? 'http' : 'https'}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close,
    [Symbol.asyncDispose]: close,
  };
}
