import { createHash } from 'node:crypto';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import { account } from '../../support/real-server.ts';
import { type Place, speaksTls, startServer } from '../../support/server-process.ts';
import { DOCUMENTS } from './documents.ts';

/** lighttpd with TLS that serves DOCUMENTS: with Digest below /digest/, to everybody below /open/. */
export interface BenchUpstream {
  /** `https://127.0.0.1:PORT`; the certificate is for localhost, too. */
  readonly origin: string;
  readonly port: number;
  /** PEM of its authority. */
  readonly ca: string;
  /** The file that has it. */
  readonly caFile: string;
  readonly username: string;
  readonly password: string;
  close(): Promise<void>;
}

export async function startBenchUpstream(): Promise<BenchUpstream> {
  const { ca, server } = await createCertificates();
  const { key, cert } = server.good;
  const lighttpd = await startServer({
    answers: ({ port }) => speaksTls(port, ca),
    async prepare(place) {
      const { folder } = place;
      await writeFile(join(folder, 'ca.pem'), ca);
      await writeFile(join(folder, 'server.pem'), `${key}${cert}`);
      await writeFile(join(folder, 'users'), userLine());
      for (const part of ['digest', 'open']) {
        await mkdir(join(folder, 'www', part), { recursive: true });
        for (const [name, length] of Object.entries(DOCUMENTS)) {
          await writeFile(join(folder, 'www', part, name), Buffer.alloc(length, 'x'));
        }
      }
      const file = join(folder, 'lighttpd.conf');
      await writeFile(file, configuration(place));
      // The contenders that root starts read ca.pem as other users.
      await chmod(folder, 0o755);
      return ['/usr/sbin/lighttpd', '-D', '-f', file];
    },
  });
  const { folder, port } = lighttpd.place;
  const { username, password } = account;
  return {
    origin: `https://127.0.0.1:${port}`,
    port,
    ca,
    caFile: join(folder, 'ca.pem'),
    username,
    password,
    close: () => lighttpd.close(),
  };
}

function userLine(): string {
  const { username, realm, password } = account;
  const ha1 = createHash('sha256').update(`${username}:${realm}:${password}`).digest('hex');
  return `${username}:${realm}:${ha1}\n`;
}

/** HTTP/1.1 only, and connections stay open: contenders are to differ in their own work, not in reconnecting. */
function configuration({ folder, port }: Place): string {
  return `
server.modules = ("mod_auth", "mod_authn_file", "mod_openssl")
server.bind = "127.0.0.1"
server.port = ${port}
server.document-root = "${folder}/www"
server.max-fds = 16384
server.max-connections = 8000
server.max-keep-alive-idle = 600
server.max-keep-alive-requests = 65535
server.max-request-field-size = 65536
server.feature-flags = ("server.h2proto" => "disable")
mimetype.assign = ("" => "application/xml")
ssl.engine = "enable"
ssl.pemfile = "${folder}/server.pem"
auth.backend = "htdigest"
auth.backend.htdigest.userfile = "${folder}/users"
auth.require = ("/digest/" => (
  "method" => "digest",
  "realm" => "${account.realm}",
  "algorithm" => "SHA-256",
  "require" => "valid-user"
))
`;
}
