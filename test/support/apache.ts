import { createHash } from 'node:crypto';
import { account, logFormat, type RealServer, startRealServer } from './real-server.ts';
import { needPackages } from './system-packages.ts';

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
