import { createHash } from 'node:crypto';
import { chmod, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createCertificates } from '../../src/simulator/certificates.ts';
import type { TestDeployment } from './gateway.ts';
import { type Place, speaksTls, startServer } from './server-process.ts';
import { testCertificates } from './simulator.ts';

/** The one account that the servers know. */
export const account = { username: 'demo-user', password: 'demo-api-key', realm: 'Tests of digest-gateway' };

/** A CGI program that says what reached it; `echoOf` is what it says. */
const ECHO = `#!/bin/sh
printf 'Content-Type: text/plain\\n\\n%s %s ' "$REQUEST_METHOD" "$REQUEST_URI"
exec sha256sum
`;

/** A line of the server's own log. */
export interface Logged {
  readonly status: number;
  readonly method: string;
  readonly requestLine: string;
  /** The Authorization that came; undefined: none. */
  readonly authorization: string | undefined;
}

/** A server from the system's packages that serves one echo, with Digest over everything. */
export interface RealServer {
  /** For `startGateway`. */
  readonly deployment: TestDeployment;
  /** Replaces the file of users at once, while the server runs. */
  setUsers(text: string): Promise<void>;
  /** Stops the server; resolves to every request that it saw, in the order of their ends. */
  stop(): Promise<Logged[]>;
  close(): Promise<void>;
}

/** Options that differ from server to server. */
export interface ServerKind {
  /** Its configuration. In the place's folder are cert.pem, key.pem, users, echo and access.log. */
  configuration(place: Place): string;
  /** PEM: the one client that it takes, whose certificate is in client.pem; anybody when left out. */
  readonly client?: { readonly key: string; readonly certificate: string };
  /** The text of `users`. */
  readonly users: string;
  /** The command that runs the server in the foreground with the configuration in this file. */
  command(file: string): readonly string[];
}

/** A log line that `parseLog` reads, in the words that both servers know. */
export const logFormat = '%s\\t%m\\t%{Authorization}i\\t%r';

/** Starts a server on a free port, with the certificates of the run. */
export async function startRealServer(kind: ServerKind): Promise<RealServer> {
  const { ca, server: certificates } = testCertificates() ?? (await createCertificates());
  const server = await startServer({
    answers: ({ port }) => speaksTls(port, ca, kind.client),
    async prepare(place) {
      const { folder } = place;
      const { key, cert } = certificates.good;
      await writeFile(join(folder, 'key.pem'), key);
      await writeFile(join(folder, 'cert.pem'), cert);
      await writeFile(join(folder, 'users'), kind.users);
      await writeFile(join(folder, 'client.pem'), kind.client?.certificate ?? '');
      await writeFile(join(folder, 'echo'), ECHO, { mode: 0o755 });
      const configuration = join(folder, 'server.conf');
      await writeFile(configuration, kind.configuration(place));
      // A server that root starts serves as somebody else.
      await chmod(folder, 0o755);
      return kind.command(configuration);
    },
  });
  const { folder, port } = server.place;
  return {
    deployment: { origin: `https://127.0.0.1:${port}`, ca, ...account },
    async setUsers(text) {
      const next = join(folder, 'users.next');
      await writeFile(next, text);
      await rename(next, join(folder, 'users'));
    },
    async stop() {
      await server.stop();
      return parseLog(await readFile(join(folder, 'access.log'), 'utf8'));
    },
    close: () => server.close(),
  };
}

/** The body of the answer to a request that reached the server like this. */
export function echoOf(method: string, target: string, body: string | Buffer = ''): string {
  return `${method} ${target} ${createHash('sha256').update(body).digest('hex')}  -\n`;
}

function parseLog(text: string): Logged[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [status, method = '', authorization = '-', requestLine = ''] = line.split('\t');
      const value = authorization === '-' ? undefined : authorization.replaceAll('\\"', '"');
      return { status: Number(status), method, requestLine, authorization: value };
    });
}
