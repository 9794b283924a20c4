import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { account, apacheUsers, echoOf, type RealServer, startRealServer } from '../../support/real-server.ts';
import { squidCommand, squidUser } from '../../support/squid.ts';
import { needPackages } from '../../support/system-packages.ts';

/** Squid as a reverse proxy with its Digest (MD5, qop=auth) before an echo. */
export async function startSquidAccelerator(): Promise<RealServer> {
  needPackages('squid');
  const origin = createServer(async (request, response) => {
    const { method = '', url = '' } = request;
    response.setHeader('content-type', 'text/plain');
    response.end(echoOf(method, url, await buffer(request)));
  }).listen(0, '127.0.0.1');
  await once(origin, 'listening');
  const server = await startRealServer({
    users: apacheUsers(account.password),
    command: squidCommand,
    configuration: ({ folder, port }) => `
https_port 127.0.0.1:${port} accel defaultsite=echo tls-cert=${folder}/cert.pem tls-key=${folder}/key.pem
cache_peer 127.0.0.1 parent ${(origin.address() as AddressInfo).port} 0 no-query no-digest originserver
visible_hostname echo
pid_filename none
logformat tests %>Hs\t%rm\t%{Authorization}>h
access_log stdio:${folder}/access.log logformat=tests
cache_log /dev/null
coredump_dir ${folder}
cache deny all
pinger_enable off
shutdown_lifetime 0 seconds
${squidUser}
auth_param digest program /usr/lib/squid/digest_file_auth -c ${folder}/users
auth_param digest children 1 startup=1
auth_param digest realm ${account.realm}
acl known proxy_auth REQUIRED
http_access deny !known
http_access allow all
`,
  }).catch((error) => {
    origin.close();
    throw error;
  });
  return {
    ...server,
    async close() {
      await server.close();
      origin.closeAllConnections();
      origin.close();
    },
  };
}
