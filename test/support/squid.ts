import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { basename, join } from 'node:path';
import { createCertificates } from '../../src/simulator/certificates.ts';
import { type Place, speaksTls, startServer } from './server-process.ts';
import { needPackages } from './system-packages.ts';

/** The one account that the proxy knows. */
export const proxyAccount = { username: 'proxy-user', password: 'proxy-word', realm: 'Proxy of the tests' };

export interface SquidOptions {
  /** Authentication that it asks for; none when left out. */
  readonly auth?: 'basic' | 'digest';
  /** It listens with TLS. */
  readonly tls?: boolean;
  /** It lets nobody through. */
  readonly deny?: boolean;
  /** nonce_max_count: a nonce that served so often is stale. */
  readonly nonceUses?: number;
}

const KEEPER = `trap 'kill -9 "$squid"' TERM; /usr/sbin/squid -N -f "$1" & squid=$!; wait "$squid"; wait "$squid"`;

/** Runs Squid in the foreground. Asked to end, it takes its time: it is killed. */
export const squidCommand = (file: string): readonly string[] => ['sh', '-c', KEEPER, 'keeper', file];

/** Squid, when root starts it, serves as somebody else. */
export const squidUser =
  process.getuid?.() === 0 ? 'cache_effective_user nobody\ncache_effective_group nogroup' : '';

/** A line of Squid's own log. */
export interface Tunnelled {
  readonly status: number;
  /** `host:port` that was asked for. */
  readonly target: string;
  /** `-`: unknown. */
  readonly user: string;
}

export interface Squid {
  /** For `egress.proxy.url`. */
  readonly url: string;
  /** PEM of the authority of its certificate. */
  readonly ca: string;
  /** Every CONNECT that has ended so far, in the order of their ends. */
  log(): Promise<Tunnelled[]>;
  close(): Promise<void>;
}

/** Squid as a forward proxy on a free port, to anywhere. */
export async function startSquid(options: SquidOptions = {}): Promise<Squid> {
  needPackages('squid', 'openssl');
  const { ca, server: certificates } = await createCertificates();
  const scheme = options.tls === true ? 'https' : 'http';
  const server = await startServer({
    answers: (place) => (options.tls === true ? speaksTls(place.port, ca) : answersAs(place)),
    async prepare(place) {
      const { folder } = place;
      const { key, cert } = certificates.good;
      await writeFile(join(folder, 'cert.pem'), cert);
      await writeFile(join(folder, 'key.pem'), key);
      await writeFile(join(folder, 'basic-users'), basicLine());
      await writeFile(join(folder, 'digest-users'), digestLine());
      const file = join(folder, 'squid.conf');
      await writeFile(file, configuration(place, options));
      // Somebody else writes the logs.
      await chmod(folder, 0o777);
      return squidCommand(file);
    },
  });
  const { folder, port } = server.place;
  return {
    url: `${scheme}://127.0.0.1:${port}`,
    ca,
    log: async () => parseLog(await readFile(join(folder, 'access.log'), 'utf8')),
    close: () => server.close(),
  };
}

function configuration({ folder, port }: Place, options: SquidOptions): string {
  const { auth, tls = false, deny = false, nonceUses = 50 } = options;
  const listen = tls
    ? `https_port 127.0.0.1:${port} tls-cert=${folder}/cert.pem tls-key=${folder}/key.pem`
    : `http_port 127.0.0.1:${port}`;
  const helpers = {
    basic: `auth_param basic program /usr/lib/squid/basic_ncsa_auth ${folder}/basic-users`,
    digest: `auth_param digest program /usr/lib/squid/digest_file_auth -c ${folder}/digest-users
auth_param digest nonce_max_count ${nonceUses}`,
  };
  const login = `${auth && helpers[auth]}
auth_param ${auth} children 1 startup=1
auth_param ${auth} realm ${proxyAccount.realm}
acl known proxy_auth REQUIRED
http_access deny !known`;
  return `
${listen}
visible_hostname ${nameOf(folder)}
pid_filename none
logformat tests %>Hs %rm %ru %un
access_log stdio:${folder}/access.log logformat=tests
cache_log ${folder}/cache.log
coredump_dir ${folder}
cache deny all
pinger_enable off
shutdown_lifetime 0 seconds
${squidUser}
${auth === undefined ? '' : login}
http_access ${deny ? 'deny' : 'allow'} all
`;
}

function nameOf(folder: string): string {
  return basename(folder).toLowerCase();
}

/** Whether it is this Squid that listens: it signs what it refuses with its name. */
function answersAs({ port, folder }: Place): Promise<boolean> {
  return new Promise((resolve) => {
    request({ host: '127.0.0.1', port, path: '/' })
      .once('response', (response) => {
        resolve(`${response.headers.via}`.includes(nameOf(folder)));
        response.resume();
      })
      .once('error', () => resolve(false))
      .end();
  });
}

function basicLine(): string {
  const { username, password } = proxyAccount;
  const hash = execFileSync('openssl', ['passwd', '-apr1', '-stdin'], { input: password, encoding: 'utf8' });
  return `${username}:${hash.trim()}\n`;
}

function digestLine(): string {
  const { username, realm, password } = proxyAccount;
  const ha1 = createHash('md5').update(`${username}:${realm}:${password}`).digest('hex');
  return `${username}:${realm}:${ha1}\n`;
}

function parseLog(text: string): Tunnelled[] {
  return text
    .split('\n')
    .map((line) => line.split(' '))
    .filter(([, method]) => method === 'CONNECT')
    .map(([status, , target = '', user = '']) => ({ status: Number(status), target, user }));
}
