import { createHash } from 'node:crypto';
import { account, logFormat, type RealServer, startRealServer } from './real-server.ts';
import { needPackages } from './system-packages.ts';

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
