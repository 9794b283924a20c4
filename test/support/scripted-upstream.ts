import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ScriptedUpstream {
  /** `http://127.0.0.1:PORT`; a deployment needs `tls.allowPlaintext` for it. */
  readonly origin: string;
  close(): Promise<void>;
}

/** An upstream that does exactly what a test says, where the simulator is too well-behaved. */
export async function startUpstream(listener: RequestListener): Promise<ScriptedUpstream> {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
