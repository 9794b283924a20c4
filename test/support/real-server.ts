import { createHash } from 'node:crypto';
import { chmod, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createCertificates } from '../../src/simulator/certificates.ts';
import type { TestDeployment } from './gateway.ts';
import { listens, type Place, type ServerPlan, speaksTls, startServer } from './server-process.ts';
import { testCertificates } from './simulator.ts';
import { needPackages } from './system-packages.ts';

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
  /** Ends the server's process, and starts it again on the same port. */
  restart(): Promise<void>;
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
  command(file: string, place: Place): readonly string[];
  /** It speaks no TLS. */
  readonly plaintext?: boolean;
}

/** A log line that `parseLog` reads, in the words that both servers know. */
export const logFormat = '%s\\t%m\\t%{Authorization}i\\t%r';

/** Starts a server on a free port, with the certificates of the run. */
export async function startRealServer(kind: ServerKind): Promise<RealServer> {
  const { ca, server: certificates } = testCertificates() ?? (await createCertificates());
  const plan: ServerPlan = {
    answers: ({ port }) => (kind.plaintext === true ? listens(port) : speaksTls(port, ca, kind.client)),
    async prepare(place) {
      const { folder } = place;
      const { key, cert } = certificates.good;
      await writeFile(join(folder, 'key.pem'), key);
      await writeFile(join(folder, 'cert.pem'), cert);
      await writeFile(join(folder, 'users'), kind.users);
      await writeFile(join(folder, 'client.pem'), kind.client?.certificate ?? '');
      await writeFile(join(folder, 'echo'), ECHO, { mode: 0o755 });
      await writeFile(join(folder, 'access.log'), '');
      await chmod(join(folder, 'access.log'), 0o666);
      const configuration = join(folder, 'server.conf');
      await writeFile(configuration, kind.configuration(place));
      // A server that root starts serves as somebody else.
      await chmod(folder, 0o755);
      return kind.command(configuration, place);
    },
  };
  let server = await startServer(plan);
  const logged: Logged[] = [];
  const stop = async (): Promise<Logged[]> => {
    await server.stop();
    logged.push(...parseLog(await readFile(join(server.place.folder, 'access.log'), 'utf8')));
    return logged;
  };
  const { port } = server.place;
  return {
    deployment: {
      ...account,
      ...(kind.plaintext === true
        ? { origin: `http://127.0.0.1:${port}`, settings: { tls: { allowPlaintext: true } } }
        : { origin: `https://127.0.0.1:${port}`, ca }),
    },
    async setUsers(text) {
      const { folder } = server.place;
      const next = join(folder, 'users.next');
      await writeFile(next, text);
      await rename(next, join(folder, 'users'));
    },
    async restart() {
      await stop();
      await server.close();
      server = await startServer(plan, port);
    },
    stop,
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

export interface ApacheOptions {
  /** AuthDigestNonceLifetime, in seconds; 0: each nonce is good for one request. 300 when left out. */
  readonly nonceLifetime?: number;
  /** AuthDigestNcCheck: nc must be the number of requests that came. Off when left out. */
  readonly checkCount?: boolean;
  /** PEM: clients have to show this certificate. None is asked for when left out. */
  readonly client?: { readonly key: string; readonly certificate: string };
  /** The only version of TLS that it speaks; each when left out. */
  readonly tlsVersion?: 'TLSv1.2' | 'TLSv1.3';
}

const MODULES = {
  mpm_event_module: 'mod_mpm_event',
  authn_core_module: 'mod_authn_core',
  authn_file_module: 'mod_authn_file',
  authz_core_module: 'mod_authz_core',
  authz_user_module: 'mod_authz_user',
  auth_digest_module: 'mod_auth_digest',
  alias_module: 'mod_alias',
  cgid_module: 'mod_cgid',
  ssl_module: 'mod_ssl',
};

/** A file of users, as htdigest writes it, in which the account has this password. */
export function apacheUsers(password: string): string {
  const { username, realm } = account;
  const ha1 = createHash('md5').update(`${username}:${realm}:${password}`).digest('hex');
  return `${username}:${realm}:${ha1}\n`;
}

/** Apache httpd with mod_auth_digest (MD5, qop=auth, rspauth always). */
export function startApache(options: ApacheOptions = {}): Promise<RealServer> {
  needPackages('apache2-bin');
  const { nonceLifetime = 300, checkCount = false, client, tlsVersion } = options;
  const { realm } = account;
  return startRealServer({
    ...(client !== undefined && { client }),
    users: apacheUsers(account.password),
    command: (file) => ['/usr/sbin/apache2', '-D', 'FOREGROUND', '-f', file],
    configuration: ({ folder, port }) => `
${Object.entries(MODULES)
  .map(([name, file]) => `LoadModule ${name} /usr/lib/apache2/modules/${file}.so`)
  .join('\n')}
${process.getuid?.() === 0 ? 'User nobody\nGroup nogroup' : ''}
ServerName 127.0.0.1
Listen 127.0.0.1:${port}
DefaultRuntimeDir ${folder}
PidFile ${folder}/pid
Mutex file:${folder}
ErrorLog ${folder}/error.log
CustomLog ${folder}/access.log "${logFormat}"
StartServers 1
ServerLimit 1
ThreadLimit 128
ThreadsPerChild 128
MaxRequestWorkers 128
AuthDigestShmemSize 1M
SSLEngine on
SSLCertificateFile ${folder}/cert.pem
SSLCertificateKeyFile ${folder}/key.pem
SSLSessionCache none
${tlsVersion === undefined ? '' : `SSLProtocol ${tlsVersion}`}
${client === undefined ? '' : `SSLVerifyClient require\nSSLCACertificateFile ${folder}/client.pem`}
<Location />
  AuthType Digest
  AuthName "${realm}"
  AuthDigestProvider file
  AuthUserFile ${folder}/users
  AuthDigestQop auth
  AuthDigestNonceLifetime ${nonceLifetime}
  AuthDigestNcCheck ${checkCount ? 'On' : 'Off'}
  Require valid-user
</Location>
ScriptSock ${folder}/cgid
ScriptAliasMatch ^/ ${folder}/echo
`,
  });
}

export type LighttpdAlgorithm = 'MD5' | 'SHA-256';

export interface LighttpdOptions {
  /** Offered in one challenge each, in this order. */
  readonly algorithms: readonly LighttpdAlgorithm[];
  /** Challenges say userhash=true. */
  readonly userhash?: boolean;
}

/** lighttpd with mod_auth (qop=auth, no rspauth, uri compared byte by byte). */
export function startLighttpd({ algorithms, userhash = false }: LighttpdOptions): Promise<RealServer> {
  needPackages('lighttpd', 'lighttpd-mod-openssl');
  return startRealServer({
    users: algorithms.map((algorithm) => userLine(algorithm, userhash)).join(''),
    command: (file) => ['/usr/sbin/lighttpd', '-D', '-f', file],
    configuration: ({ folder, port }) => `
server.modules = ("mod_auth", "mod_authn_file", "mod_accesslog", "mod_rewrite", "mod_cgi", "mod_openssl")
server.bind = "127.0.0.1"
server.port = ${port}
server.document-root = "${folder}"
server.upload-dirs = ("${folder}")
accesslog.filename = "${folder}/access.log"
accesslog.format = "${logFormat}"
ssl.engine = "enable"
ssl.pemfile = "${folder}/cert.pem"
ssl.privkey = "${folder}/key.pem"
auth.backend = "htdigest"
auth.backend.htdigest.userfile = "${folder}/users"
auth.require = ("/" => (
  "method" => "digest",
  "realm" => "${account.realm}",
  "algorithm" => "${algorithms.join('|')}",
  "userhash" => "${userhash ? 'enable' : 'disable'}",
  "require" => "valid-user"
))
url.rewrite-once = ("" => "/echo")
cgi.assign = ("/echo" => "")
`,
  });
}

function userLine(algorithm: LighttpdAlgorithm, userhash: boolean): string {
  const hash = (text: string): string =>
    createHash(algorithm === 'MD5' ? 'md5' : 'sha256')
      .update(text)
      .digest('hex');
  const { username, realm, password } = account;
  const known = `${username}:${realm}:${hash(`${username}:${realm}:${password}`)}`;
  return userhash ? `${known}:${hash(`${username}:${realm}`)}\n` : `${known}\n`;
}
