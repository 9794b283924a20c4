import { hash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { access, readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { connect as connectPlain, createServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, describe, expect, test } from '@jest/globals';
import { addressName } from '../../../src/base/open-port.ts';
import { useFolders } from '../../support/audit-log.ts';
import { call, requestsOf } from '../../support/client-call.ts';
import { closing } from '../../support/closing.ts';
import { setupFor } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { listenOnLoopback } from '../../support/loopback-server.ts';
import { OF_PROGRAM, post, TOKEN_HASHES } from '../../support/operator.ts';
import { authors, openScene, type SceneOptions, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
const EXPIRY = 'digest_gateway_listen_certificate_expiry_timestamp_seconds';
const REFUSED = 'digest_gateway_connections_refused_total';
const folderOf = useFolders();
const authority = await createTestAuthority();
const [first, second, fixed, reporting] = await Promise.all([
  authority.server({ subject: 'CN=first' }),
  authority.server({ subject: 'CN=second', notAfter: Date.now() + 1_800_000 }),
  authority.server({ subject: 'CN=fixed' }),
  authority.client(),
]);
const fixedFiles = await writeTlsFiles(fixed, authority.ca);
afterAll(() => fixedFiles.remove());

const clients = [
  { id: 'reporting', identify: { certificate: { san: 'dns:reporting.internal' } } },
  { id: 'keyed', identify: { apiKeySha256: hash('sha256', KEY) } },
].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));

const keyed = clients.slice(1);
const withKey = { 'x-api-key': KEY };

/** A plain port, TLS with client certificates, a UNIX socket, and TLS without client certificates. */
async function listeners(change: { readonly hosts?: readonly string[]; readonly limits?: object } = {}) {
  const files = await writeTlsFiles(first, authority.ca);
  closing.push(files.remove);
  const socket = join(await folderOf(), 'data.sock');
  const { hosts, limits } = change;
  const { certFile, keyFile } = fixedFiles.section;
  const listen = [
    { port: 0, ...(limits && { limits }) },
    { port: 0, tls: files.section, ...(hosts && { hosts }) },
    { address: `unix:${socket}` },
    { port: 0, tls: { certFile, keyFile } },
  ];
  return { files, socket, listen };
}

async function start(listen: readonly object[], top: SceneOptions['top'] = {}) {
  const scene = await startScene({ top: { listen, anonymous: false, clients, ...top } });
  const [plain = 0, secure = 0, , other = 0] = scene.gateway.listening.map(({ port }) => port);
  return {
    ...scene,
    plain: { origin: `http://127.0.0.1:${plain}` },
    secure: { origin: `https://127.0.0.1:${secure}` },
    other: { origin: `https://127.0.0.1:${other}` },
  };
}

/** The status of a request over a UNIX socket. */
async function over(socketPath: string, headers: Record<string, string> = {}): Promise<number> {
  const sent = request({ socketPath, path: authors, headers }).end();
  const [response] = await once(sent, 'response');
  await text(response);
  return response.statusCode;
}

/** The name in the certificate that a new connection gets. */
async function served(port: number): Promise<string | undefined> {
  const socket = connect({ host: '127.0.0.1', port, ca: authority.ca });
  await once(socket, 'secureConnect');
  const { subject } = socket.getPeerX509Certificate() ?? {};
  socket.resume().end();
  await once(socket, 'close');
  return subject;
}

const expiryOf = ({ cert }: { cert: string }) => new X509Certificate(cert).validToDate.getTime() / 1000;
const portOf = ({ origin }: { origin: string }) => Number(new URL(origin).port);
const tls = (pair?: { cert: string; key: string }) => ({ ca: authority.ca, ...pair });

describe('several listeners', () => {
  test('serve at the same time, and a certificate identifies a client only where it is asked for', async () => {
    const { listen, socket } = await listeners();
    const { gateway, plain, secure, other } = await start(listen);
    expect((await call(secure, { tls: tls(reporting) })).status).toBe(200);
    expect(await requestsOf(gateway, 'reporting')).toBe(1);
    // Without an authority, the server does not ask for the certificate that this client has.
    const unasked = await call(other, { tls: tls(reporting) });
    expect(unasked).toMatchObject({ status: 401, detail: expect.stringContaining('no API key. ') });
    expect((await call(plain)).status).toBe(401);
    expect(await over(socket)).toBe(401);
    for (const each of [plain, other]) {
      expect((await call(each, { tls: tls(), headers: withKey })).status).toBe(200);
    }
    expect(await over(socket, withKey)).toBe(200);
    expect(await requestsOf(gateway, 'keyed')).toBe(3);
    const described = await (await fetch(`${gateway.control}/openapi.json`)).json();
    const { servers } = described as { servers: { url: string }[] };
    expect(servers.map(({ url }) => url)).toEqual([
      'http://{host}:{port}',
      'https://{host}:{port}',
      'http://localhost',
      'https://{host}:{port}',
    ]);
  });

  test('have host names of their own, which a reload changes at one of them', async () => {
    const { listen } = await listeners({ hosts: ['localhost'] });
    const { gateway, deployment, plain, secure } = await start(listen);
    const codes = async (host: string) => {
      const headers = { host, ...withKey };
      const both = [
        call(plain, { headers }),
        call(secure, { headers, tls: { ...tls(), servername: 'localhost' } }),
      ];
      return (await Promise.all(both)).map(({ code }) => code);
    };
    expect(await codes('localhost')).toEqual(['', '']);
    expect(await codes('other.internal')).toEqual(['', 'host-unknown']);
    const top = {
      anonymous: false,
      clients,
      listen: listen.map((each, index) => (index === 1 ? { ...each, hosts: ['other.internal'] } : each)),
    };
    const setup = await setupFor({ submissions: deployment }, top);
    expect(await gateway.app.reload(async () => setup)).toMatchObject({
      result: 'success',
      changed: ['listen'],
      needsRestart: [],
    });
    expect(await codes('other.internal')).toEqual(['', '']);
    expect(await codes('localhost')).toEqual(['', 'host-unknown']);
  });

  test('keep their addresses and their number over a reload that names others', async () => {
    const { listen, socket } = await listeners();
    const { gateway, deployment, plain } = await start(listen);
    const setup = await setupFor(
      { submissions: deployment },
      { anonymous: false, clients, listen: listen.slice(0, 2) },
    );
    expect(await gateway.app.reload(async () => setup)).toMatchObject({
      result: 'success',
      needsRestart: ['listen[2]', 'listen[3]'],
    });
    expect(await over(socket, withKey)).toBe(200);
    expect((await call(plain, { headers: withKey })).status).toBe(200);
  });

  test('a certificate that changes is replaced at its listener', async () => {
    const { listen, files } = await listeners();
    const { gateway, secure, other } = await start(listen);
    const names = gateway.listening.map(addressName);
    const expiries = () => Promise.all(names.map((listener) => gateway.metric(EXPIRY, { listener })));
    expect(await expiries()).toEqual([0, expiryOf(first), 0, expiryOf(fixed)]);
    await files.replace(second);
    await until(async () => (await served(portOf(secure))) === 'CN=second');
    expect(await served(portOf(other))).toBe('CN=fixed');
    expect(await expiries()).toEqual([0, expiryOf(second), 0, expiryOf(fixed)]);
    expect(gateway.logged).toContainEqual(
      expect.objectContaining({ msg: 'certificate of a listener replaced', files: 'listen[1].tls' }),
    );
  });

  test('share the limit of connections', async () => {
    const { listen, socket } = await listeners({ limits: { connections: 2 } });
    const { gateway, plain, other } = await start(listen);
    const one = connectPlain(portOf(plain), '127.0.0.1');
    const two = connect({ port: portOf(other), host: '127.0.0.1', ca: authority.ca });
    await Promise.all([once(one, 'connect'), once(two, 'secureConnect')]);
    await until(async () => {
      const third = connectPlain(socket);
      await once(third.resume(), 'close');
      return (await gateway.metric(REFUSED, { limit: 'total', listener: `unix:${socket}` })) > 0;
    });
    expect(await gateway.metric(REFUSED, { listener: plain.origin.replace('http://', '') })).toBe(0);
    one.destroy();
    two.destroy();
    await until(async () => (await over(socket, withKey).catch(() => 0)) === 200);
  });

  test('a PROXY header is expected only where it is configured', async () => {
    const listen = [{ port: 0 }, { port: 0, proxyProtocol: ['127.0.0.1'] }];
    const { gateway, plain, secure } = await start(listen, { clients: keyed });
    expect((await call(plain, { headers: withKey })).status).toBe(200);
    const raw = connectPlain(portOf(secure), '127.0.0.1');
    raw.write('GET / HTTP/1.1\r\n');
    await once(raw.resume(), 'close');
    const name = 'digest_gateway_proxy_headers_refused_total';
    const listener = secure.origin.replace('https://', '');
    await until(async () => (await gateway.metric(name, { listener, reason: 'malformed' })) === 1);
  });

  test('one that cannot be opened is named, and the others are closed again', async () => {
    const taken = await listenOnLoopback(createServer());
    closing.push(taken.close);
    const socket = join(await folderOf(), 'data.sock');
    const listen = [{ address: `unix:${socket}` }, { port: taken.port }];
    await expect(start(listen, { clients: keyed })).rejects.toThrow(
      `listen[1].port: another program listens on port ${taken.port}`,
    );
    await expect(access(socket)).rejects.toThrow('ENOENT');
  });
});

test('workers share all listeners, over a reload, a renewed certificate and an upgrade, until all are drained', async () => {
  const { listen, socket, files } = await listeners();
  await using scene = await openScene({
    workers: 2,
    top: { listen, anonymous: false, clients, control: { port: 0, ...TOKEN_HASHES }, drain: { delay: '0s' } },
  });
  const { gateway } = scene;
  expect(gateway.listening).toEqual([
    expect.stringMatching(/^http:/),
    expect.stringMatching(/^https:/),
    `unix:${socket}`,
    expect.stringMatching(/^https:/),
  ]);
  const [plain, secure, other] = [0, 1, 3].map((index) => ({ origin: gateway.listening[index] ?? '' }));
  if (plain === undefined || secure === undefined || other === undefined) throw new Error('four listen');
  const ask = async (): Promise<number[]> => [
    (await call(plain, { headers: withKey })).status,
    (await call(secure, { tls: tls(reporting) })).status,
    await over(socket, withKey),
    (await call(other, { tls: tls(), headers: withKey })).status,
  ];
  const all = [200, 200, 200, 200];
  expect(await ask()).toEqual(all);

  await files.replace(second);
  const NAMES = 10;
  const names = async () =>
    new Set(await Promise.all(Array.from({ length: NAMES }, () => served(portOf(secure)))));
  await until(async () => [...(await names())].join() === 'CN=second');
  expect(await served(portOf(other))).toBe('CN=fixed');

  const config = await readFile(gateway.configFile, 'utf8');
  await writeFile(gateway.configFile, `${config}\nlog: { level: debug }\n`);
  expect((await post(`${gateway.control}/api/reload`, undefined, OF_PROGRAM)).status).toBe(200);
  expect(await ask()).toEqual(all);

  process.kill(gateway.pid, 'SIGUSR2');
  await until(async () => {
    expect(await ask()).toEqual(all);
    return gateway.logged.some(({ msg }) => msg === 'upgrade: the old workers have ended');
  });
  expect(await ask()).toEqual(all);
  // The new workers have the certificate that was renewed.
  expect([...(await names())]).toEqual(['CN=second']);

  await gateway.drain();
  expect(await gateway.ended).toBe(0);
  await expect(over(socket, withKey)).rejects.toThrow('ENOENT');
  for (const each of [plain, secure, other])
    await expect(call(each, { tls: tls() })).rejects.toThrow('ECONNREFUSED');
});
