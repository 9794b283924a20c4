import { hash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { chmod, rename, writeFile } from 'node:fs/promises';
import { Agent } from 'node:https';
import { connect as connectTcp } from 'node:net';
import { duplexPair } from 'node:stream';
import { connect, TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { KeyPair } from '../../../src/simulator/certificates.ts';
import { call, requestsOf } from '../../support/client-call.ts';
import { closing } from '../../support/closing.ts';
import { setupFor } from '../../support/gateway.ts';
import {
  createTestAuthority,
  type TestAuthority,
  type TlsFiles,
  writeTlsFiles,
} from '../../support/issued-certificates.ts';
import { authors, openScene, type RunningScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';
import { useRunning } from '../../support/wire.ts';

const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
const servers = await createTestAuthority('CN=Servers');
const authority = await createTestAuthority('CN=Clients');
const stranger = await createTestAuthority('CN=Clients');
const dns = (value: string) => [{ type: 'dns', value }] as const;
const [reporting, renewed, pinned, other, expired, forged, server] = await Promise.all([
  authority.client(),
  authority.client(),
  authority.client({ subject: 'CN=pinned', names: dns('pinned.internal') }),
  authority.client({ subject: 'CN=other', names: dns('other.internal') }),
  authority.client({ notBefore: Date.now() - 7_200_000, notAfter: Date.now() - 3_600_000 }),
  stranger.client(),
  servers.server(),
]);

describe('listen.tls', () => {
  const fingerprint256 = new X509Certificate(pinned.cert).fingerprint256;
  const clients = [
    { id: 'pinned', identify: { certificate: { fingerprint256 } } },
    {
      id: 'both',
      identify: { certificate: { san: 'dns:reporting.internal' }, apiKeySha256: hash('sha256', KEY) },
    },
    {
      id: 'reporting',
      identify: { certificate: { subject: 'O=Example, CN=reporting', san: 'dns:Reporting.Internal' } },
    },
    { id: 'keyed', identify: { apiKeySha256: hash('sha256', `${KEY}2`) } },
  ].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));

  const running = useRunning(() => start('TLSv1.3'));
  const lenient = useRunning(() => start('TLSv1.2'));

  async function start(minVersion: string) {
    const files = await writeTlsFiles(server, authority.ca);
    const listen = { port: 0, tls: { ...files.section, minVersion } };
    const pair = await openScene({ top: { anonymous: false, clients, listen } });
    const close = async () => {
      await pair.close();
      await files.remove();
    };
    return { ...pair, close };
  }

  const tls = (pair?: { cert: string; key: string }) => ({ ca: servers.ca, ...pair });

  describe('a client certificate', () => {
    test.each([
      ['of the right subject and name', reporting, 'reporting'],
      ['that was renewed', renewed, 'reporting'],
      ['of the right fingerprint', pinned, 'pinned'],
    ])('%s', async (_title, pair, client) => {
      const { gateway } = running();
      const before = await requestsOf(gateway, client);
      expect((await call(gateway, { tls: tls(pair) })).status).toBe(200);
      expect(await requestsOf(gateway, client)).toBe(before + 1);
    });

    test.each([
      ['of somebody else', other, '127.0.0.1, no API key, a certificate. '],
      ['that has expired', expired, 'a certificate that was not accepted (CERT_HAS_EXPIRED)'],
      [
        'of another authority with the same names',
        forged,
        'a certificate that was not accepted (UNABLE_TO_VERIFY_LEAF_SIGNATURE)',
      ],
      ['that is not there', undefined, '127.0.0.1, no API key. '],
    ])('%s is refused with the reason', async (_title, pair, reason) => {
      const { gateway } = running();
      const { status, code, detail } = await call(gateway, { tls: tls(pair) });
      expect([status, code, detail]).toEqual([401, 'client-unknown', expect.stringContaining(reason)]);
    });

    test('has its chain read only if it is accepted', async () => {
      const { gateway } = running();
      const { getPeerCertificate } = TLSSocket.prototype;
      let read = 0;
      const reads = jest.spyOn(TLSSocket.prototype, 'getPeerCertificate');
      reads.mockImplementation(function (this: TLSSocket, ...args) {
        // The client in this process reads that of the gateway.
        if (this.localPort === gateway.port) read += 1;
        return getPeerCertificate.apply(this, args);
      });
      expect((await call(gateway, { tls: tls(forged) })).status).toBe(401);
      expect(read).toBe(0);
      expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
      expect(read).toBeGreaterThan(0);
      reads.mockRestore();
    });

    describe('that ends while its connection is open', () => {
      const HOUR_MS = 3_600_000;
      const DAY_MS = 24 * HOUR_MS;
      const ENDED = '(CERT_HAS_EXPIRED)';
      afterEach(() => {
        jest.restoreAllMocks();
      });

      test.each([
        ['itself', { notAfter: Date.now() + HOUR_MS }, HOUR_MS],
        // The authority is valid for 90 days.
        ['with its authority', { notAfter: Date.now() + 200 * DAY_MS }, 90 * DAY_MS],
      ])('%s, is refused from then on', async (_title, order, laterMs) => {
        const { gateway } = running();
        const agent = new Agent({ ...tls(await authority.client(order)), keepAlive: true, maxSockets: 1 });
        const { now } = Date;
        const later = jest.spyOn(Date, 'now');
        expect((await call(gateway, { agent })).status).toBe(200);
        later.mockImplementation(() => now() + laterMs - 60_000);
        expect((await call(gateway, { agent })).status).toBe(200);
        later.mockImplementation(() => now() + laterMs);
        for (let count = 0; count < 2; count += 1) {
          expect(await call(gateway, { agent })).toMatchObject({
            status: 401,
            code: 'client-unknown',
            detail: expect.stringContaining(ENDED),
          });
        }
        agent.destroy();
      });
    });

    test.each(['TLSv1.2', 'TLSv1.3'] as const)(
      'is verified anew on each connection: no session of %s is resumed',
      async (maxVersion) => {
        const options = { host: '127.0.0.1', port: lenient().gateway.port, maxVersion, ...tls(reporting) };
        const first = connect(options);
        const [session] = (await once(first, 'session')) as [Buffer];
        first.destroy();
        const second = connect({ ...options, session });
        await once(second, 'secureConnect');
        expect(second.isSessionReused()).toBe(false);
        second.resume().end();
        await once(second, 'close');
      },
    );

    test('is that of the first handshake: no other one follows on a connection', async () => {
      const { port } = lenient().gateway;
      const socket = connect({ host: '127.0.0.1', port, maxVersion: 'TLSv1.2', ...tls(reporting) });
      await once(socket, 'secureConnect');
      const renegotiated = new Promise((resolve) => {
        socket.renegotiate({}, () => resolve('renegotiated'));
      });
      const refused = once(socket, 'error').then(([{ code }]) => code);
      await expect(Promise.race([refused, renegotiated])).resolves.toBe('ERR_SSL_NO_RENEGOTIATION');
      socket.destroy();
    });

    test('is not enough alone where the client also needs a key', async () => {
      const { gateway } = running();
      const headers = { 'X-Api-Key': KEY };
      expect((await call(gateway, { tls: tls(reporting), headers })).status).toBe(200);
      expect(await requestsOf(gateway, 'both')).toBe(1);
      expect((await call(gateway, { tls: tls(forged), headers })).status).toBe(401);
      expect((await call(gateway, { tls: tls(), headers })).status).toBe(401);
    });

    test('is not needed by a client that is identified otherwise', async () => {
      const { gateway } = running();
      expect((await call(gateway, { tls: tls(), headers: { 'X-Api-Key': `${KEY}2` } })).status).toBe(200);
      expect(await requestsOf(gateway, 'keyed')).toBe(1);
    });
  });

  describe('the server', () => {
    test('refuses a version of TLS below the configured one', async () => {
      const old = { ...tls(reporting), maxVersion: 'TLSv1.2' as const };
      await expect(call(running().gateway, { tls: old })).rejects.toThrow(/protocol version/);
    });

    test('survives a client that speaks plain HTTP', async () => {
      const { gateway } = running();
      const plain = { origin: gateway.origin.replace('https:', 'http:') };
      await expect(call(plain)).rejects.toThrow();
      expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
      expect(await gateway.metric('digest_gateway_requests_total', { code: 'bad-request' })).toBe(0);
    });

    test('reports the expiry of its certificate in the metrics', async () => {
      const name = 'digest_gateway_listen_certificate_expiry_timestamp_seconds';
      const expires = new X509Certificate(server.cert).validToDate.getTime() / 1000;
      expect(await running().gateway.metric(name)).toBe(expires);
    });
  });
});

test('a client that goes within its TLS handshake does not hold up the end', async () => {
  const files = await writeTlsFiles(server, authority.ca);
  const listen = { port: 0, tls: files.section, limits: { headersTimeout: '1h' } };
  await using scene = await openScene({ top: { listen, drain: { timeout: '1h' } } });
  const socket = connect({ host: '127.0.0.1', port: scene.gateway.port, rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  // The gateway has not read the end of the handshake yet.
  socket.destroy();
  await expect(scene.gateway.close()).resolves.toBeUndefined();
  await files.remove();
});

describe('the certificate of the gateway is replaced without a dropped connection', () => {
  let authority: TestAuthority;
  let files: TlsFiles;
  let first: KeyPair;
  let second: KeyPair;
  let pair: RunningScene;

  beforeEach(async () => {
    authority = await createTestAuthority();
    [first, second] = await Promise.all([
      authority.server({ subject: 'CN=first' }),
      authority.server({ subject: 'CN=second' }),
    ]);
    files = await writeTlsFiles(first, authority.ca);
    pair = await openScene({ top: { listen: { port: 0, tls: files.section } } });
  });
  afterEach(async () => {
    await pair.close();
    await files.remove();
  });

  /** The name in the certificate that a new connection gets. */
  async function served(): Promise<string | undefined> {
    const socket = connect({ host: '127.0.0.1', port: pair.gateway.port, ca: authority.ca });
    await once(socket, 'secureConnect');
    const { subject } = socket.getPeerX509Certificate() ?? {};
    // A reset before the server has the end of the handshake leaves it waiting for that until its timeout.
    socket.resume().end();
    await once(socket, 'close');
    return subject;
  }

  interface Load {
    /** Resolves when every client has been answered once more from here on. */
    round(): Promise<void>;
    stop(): Promise<{ statuses: Set<number>; connections: number }>;
  }

  /** Clients that ask one thing after the other, each on a connection that it keeps, until they are stopped. */
  function underLoad(clients: number): Load {
    const agents = Array.from(
      { length: clients },
      () => new Agent({ ca: authority.ca, keepAlive: true, maxSockets: 1 }),
    );
    let stopped = false;
    let connections = 0;
    const answered = agents.map(() => 0);
    const run = async (agent: Agent, index: number): Promise<number[]> => {
      const statuses: number[] = [];
      while (!stopped) {
        statuses.push((await call(pair.gateway, { agent })).status);
        answered[index] = statuses.length;
      }
      return statuses;
    };
    for (const agent of agents) {
      const open = agent.createConnection.bind(agent);
      agent.createConnection = (...args) => {
        connections += 1;
        return open(...args);
      };
    }
    const running = Promise.all(agents.map(run));
    return {
      round: async () => {
        // The next response may be to a request from before; the one after it is not.
        const wanted = answered.map((count) => count + 2);
        await until(() => answered.every((count, index) => count >= (wanted[index] ?? 0)));
      },
      stop: async () => {
        stopped = true;
        const statuses = (await running).flat();
        for (const agent of agents) agent.destroy();
        return { statuses: new Set(statuses), connections };
      },
    };
  }

  const told = (text: string) => pair.gateway.logged.some(({ msg }) => msg === text);
  const REPLACED = 'certificate of a listener replaced';
  const KEPT = 'changed files of listen.tls cannot be used; keeping the current certificate';

  test('when its files change', async () => {
    const load = underLoad(8);
    await load.round();
    expect(await served()).toBe('CN=first');
    await files.replace(second);
    await until(() => told(REPLACED));
    await until(async () => (await served()) === 'CN=second');
    await load.round();
    const { statuses, connections } = await load.stop();
    expect([statuses, connections]).toEqual([new Set([200]), 8]);
  });

  test('with a warning if it is not valid yet', async () => {
    const notBefore = Date.now() + 10 * 86_400_000;
    await files.replace(await authority.server({ notBefore, notAfter: notBefore + 86_400_000 }));
    await until(() => pair.gateway.logged.some(({ msg }) => /is not valid before/.test(String(msg))));
    expect(told(REPLACED)).toBe(true);
  });

  test('on a reload, together with new rules', async () => {
    const load = underLoad(4);
    await load.round();
    await files.replace(second);
    const { origin } = pair.simulator.deployments.submissions;
    const upstream = { submissions: { origin, ca: pair.simulator.ca } };
    const setup = await setupFor(upstream, { listen: { port: 0, tls: files.section } });
    await pair.gateway.app.reload(() => Promise.resolve(setup));
    expect(await served()).toBe('CN=second');
    await load.round();
    const { statuses, connections } = await load.stop();
    expect([statuses, connections]).toEqual([new Set([200]), 4]);
  });

  test('unless the new pair does not match', async () => {
    await files.replace({ cert: second.cert, key: first.key });
    await until(() => told(KEPT));
    expect(pair.gateway.logged.find(({ msg }) => msg === KEPT)).toMatchObject({
      level: 'warn',
      reason: 'is not the key of the first certificate in certFile: name a pair',
    });
    expect(await served()).toBe('CN=first');
    await files.replace(second);
    await until(async () => (await served()) === 'CN=second');
  });

  test('unless others can read the new key, until its mode is changed', async () => {
    const { keyFile } = files.section;
    await files.replace(second, 0o644);
    await until(() => told(KEPT));
    expect(pair.gateway.logged.find(({ msg }) => msg === KEPT)).toMatchObject({
      level: 'warn',
      reason: `${keyFile} can be read by others: run chmod 600 on it, or write { file: NAME, readableByOthers: true }`,
    });
    expect(await served()).toBe('CN=first');
    await chmod(keyFile, 0o600);
    await until(async () => (await served()) === 'CN=second');
  });
});

describe('listen.tls.crlFile', () => {
  const clients = [
    {
      id: 'reporting',
      identify: { certificate: { subject: 'O=Example, CN=reporting' } },
      allow: [{ deployment: 'submissions' }],
    },
  ];
  const tls = (pair: KeyPair) => ({ ca: servers.ca, ...pair });
  const REPLACED = 'certificate of a listener replaced';

  async function start(list: string) {
    const files = await writeTlsFiles(server, authority.ca);
    const crlFile = `${files.section.clientCaFile}.crl`;
    await writeFile(crlFile, list);
    const listen = { port: 0, tls: { ...files.section, crlFile } };
    const scene = await openScene({ top: { anonymous: false, clients, listen } });
    closing.push(async () => {
      await scene.close();
      await files.remove();
    });
    return {
      gateway: scene.gateway,
      read: () =>
        setupFor(
          { submissions: scene.deployment },
          { anonymous: false, clients, listen },
          scene.gateway.versions,
        ),
      replace: async (next: string) => {
        await writeFile(`${crlFile}-fresh`, next);
        await rename(`${crlFile}-fresh`, crlFile);
        await until(() => scene.gateway.logged.some(({ msg }) => msg === REPLACED));
      },
    };
  }

  test('refuses a revoked certificate, and no other one', async () => {
    const { gateway } = await start(await authority.revoke([renewed]));
    expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
    expect(await call(gateway, { tls: tls(renewed) })).toMatchObject({
      status: 401,
      code: 'client-unknown',
      detail: expect.stringContaining('(CERT_REVOKED)'),
    });
  });

  test('ends the open connection of a certificate that a change of the file revokes', async () => {
    const { gateway, replace } = await start(await authority.revoke([]));
    const open = connect({ host: '127.0.0.1', port: gateway.port, ...tls(renewed) });
    open.write(`GET ${authors} HTTP/1.1\r\nHost: x\r\n\r\n`);
    const [response] = (await once(open, 'data')) as [Buffer];
    expect(response.toString('latin1')).toMatch(/^HTTP\/1\.1 200 /);
    const closed = once(open.resume(), 'close');
    await replace(await authority.revoke([renewed]));
    await closed;
    expect((await call(gateway, { tls: tls(renewed) })).status).toBe(401);
    expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
  });

  test('is not put back by a reload that began to read before it changed', async () => {
    const { gateway, read, replace } = await start(await authority.revoke([]));
    const [hasRead, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const reloaded = gateway.app.reload(async () => {
      const setup = await read();
      hasRead.resolve();
      await mayGoOn.promise;
      return setup;
    });
    await hasRead.promise;
    await replace(await authority.revoke([renewed]));
    mayGoOn.resolve();
    expect(await reloaded).toMatchObject({ result: 'success' });
    expect((await call(gateway, { tls: tls(renewed) })).status).toBe(401);
  });

  test('ends a handshake that a change of the file overtakes', async () => {
    const { gateway, replace } = await start(await authority.revoke([]));
    const [near, far] = duplexPair();
    const client = connect({ socket: near, ...tls(renewed) }).on('error', () => {});
    const toGateway = connectTcp(gateway.port, '127.0.0.1').on('error', () => far.end());
    far.pipe(toGateway);
    // The first bytes of the gateway have come, and the client has not seen them.
    await once(toGateway, 'readable');
    await replace(await authority.revoke([renewed]));
    client.write(`GET ${authors} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    const ended = once(client, 'end');
    let received = '';
    client.on('data', (bytes) => {
      received += bytes.toString('latin1');
    });
    toGateway.pipe(far);
    await ended;
    client.destroy();
    expect(received).toBe('');
    expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
  });

  test('refuses all certificates of an authority whose list has expired, and says so in the metrics', async () => {
    const ended = Date.UTC(2026, 0, 2);
    const { gateway, replace } = await start(await authority.revoke([], ended));
    const NAME = 'digest_gateway_listen_crl_expiry_timestamp_seconds';
    expect(await gateway.metric(NAME)).toBe(ended / 1000);
    expect((await call(gateway, { tls: tls(reporting) })).detail).toContain('(CRL_HAS_EXPIRED)');
    await replace(await authority.revoke([]));
    expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
    expect(await gateway.metric(NAME)).toBeGreaterThan(Date.now() / 1000);
  });
});
