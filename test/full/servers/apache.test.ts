import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { Secret } from '../../../src/base/secret.ts';
import { closing } from '../../support/closing.ts';
import { credentialSet } from '../../support/gateway.ts';
import { makeClientCertificate } from '../../support/issued-certificates.ts';
import { startArrivals } from '../../support/load.ts';
import {
  type ApacheOptions,
  account,
  apacheUsers,
  echoOf,
  type Logged,
  type RealServer,
  startApache,
} from '../../support/real-server.ts';
import { type ScriptedUpstream, startUpstream } from '../../support/scripted-upstream.ts';
import { expectCrowdsServed, type ServerScene, startServerScene } from '../../support/server-scene.ts';
import { until } from '../../support/until.ts';

describe('plain clients', () => {
  test('reach Apache byte for byte, all on one challenge', async () => {
    const { ask, attempts, stop } = await startServerScene(startApache());
    const targets = [
      '/api/submissionids?ids=%27DEMO-1%27&site_name=demo',
      "/api/submissionids?ids='DEMO-1'&site_name=demo",
      '/api/a%20b;c=1?x=%2F%3F&y=%22quoted%22&z=%5C',
      '/api/?',
    ];
    for (const target of targets) {
      const seen = await ask(target);
      expect([seen.status, seen.body]).toEqual([200, echoOf('GET', target)]);
    }
    expect(await attempts()).toEqual({ challenged: 1, ok: targets.length });
    expect((await stop()).map(({ status }) => status)).toEqual([401, ...targets.map(() => 200)]);
  });

  test('have their body sent again after the challenge', async () => {
    const { ask, stop } = await startServerScene(startApache());
    const body = Buffer.alloc(200_000, 'ids=1&');
    const seen = await ask('/api/batch', { method: 'POST', body });
    expect([seen.status, seen.body]).toEqual([200, echoOf('POST', '/api/batch', body)]);
    const log = await stop();
    expect(log.map(({ status, method }) => [status, method])).toEqual([
      [401, 'POST'],
      [200, 'POST'],
    ]);
  });

  test('get a response without a body for HEAD', async () => {
    const { ask, stop } = await startServerScene(startApache());
    const seen = await ask('/api/abstracts?ids=%27A%27', { method: 'HEAD' });
    expect([seen.status, seen.headers['content-type'], seen.body]).toEqual([200, 'text/plain', '']);
    expect((await stop()).map(({ status, method }) => [status, method])).toEqual([
      [401, 'HEAD'],
      [200, 'HEAD'],
    ]);
  });

  test('share one challenge, fifty at once, with each nc used once', async () => {
    const { ask, attempts, stop } = await startServerScene(startApache());
    const targets = Array.from({ length: 50 }, (_, index) => `/api/abstracts?client=${index}`);
    const seen = await Promise.all(targets.map((target) => ask(target)));
    expect(seen.map(({ body }) => body)).toEqual(targets.map((target) => echoOf('GET', target)));
    expect(await attempts()).toEqual({ challenged: 1, ok: 50 });
    const counts = (await stop()).flatMap(
      ({ authorization }) => /nc=(\w{8})/.exec(authorization ?? '')?.[1] ?? [],
    );
    expect(new Set(counts).size).toBe(50);
  });
});

describe('the proof in rspauth', () => {
  /** Somebody between gateway and Apache, who passes everything on but for what `change` does to the proof. */
  async function startBetween(
    { deployment: { origin, ca = '' } }: RealServer,
    change: (authenticationInfo: string) => string,
  ): Promise<ScriptedUpstream> {
    const apache = new Pool(origin, { connect: { ca } });
    closing.push(() => apache.close());
    const between = await startUpstream(async (req, res) => {
      const { authorization } = req.headers;
      const { statusCode, headers, body } = await apache.request({
        path: req.url ?? '',
        method: 'GET',
        headers: authorization === undefined ? {} : { authorization },
      });
      const { 'authentication-info': proof, 'www-authenticate': challenge } = headers;
      if (challenge !== undefined) res.setHeader('www-authenticate', challenge);
      if (typeof proof === 'string') res.setHeader('authentication-info', change(proof));
      res.writeHead(statusCode).end(await body.text());
    });
    closing.push(() => between.close());
    return between;
  }

  async function setSceneBetween(change: (authenticationInfo: string) => string) {
    const server = await startApache();
    const between = await startBetween(server, change).catch(async (error) => {
      await server.close();
      throw error;
    });
    return startServerScene(Promise.resolve(server), {
      origin: between.origin,
      settings: { tls: { allowPlaintext: true } },
    });
  }

  test('is accepted and removed from the response', async () => {
    const proofs: string[] = [];
    const { ask, attempts } = await setSceneBetween((proof) => {
      proofs.push(proof);
      return proof;
    });
    for (const target of ['/api/1?ids=%27A%27', '/api/2']) {
      const seen = await ask(target);
      expect([seen.status, seen.body]).toEqual([200, echoOf('GET', target)]);
      expect(seen.headers['authentication-info']).toBeUndefined();
    }
    expect(proofs).toEqual([
      expect.stringMatching(/rspauth="[0-9a-f]{32}".*nc=00000001/),
      expect.stringMatching(/rspauth="[0-9a-f]{32}".*nc=00000002/),
    ]);
    expect(await attempts()).toEqual({ challenged: 1, ok: 2 });
  });

  test('of another response makes the gateway answer 502', async () => {
    let first: string | undefined;
    const { ask, attempts } = await setSceneBetween((proof) => {
      first ??= proof;
      return first;
    });
    expect((await ask('/api/1')).status).toBe(200);
    const seen = await ask('/api/2');
    expect([seen.status, JSON.parse(seen.body)]).toMatchObject([502, { code: 'upstream-proof-invalid' }]);
    expect(await attempts()).toEqual({ challenged: 1, ok: 1, error: 1 });
  });
});

describe('a body above body.replayUpTo', () => {
  const body = Buffer.alloc(8 << 20, '0123456789');

  test('is sent once, after a HEAD that obtains the challenge', async () => {
    const { ask, attempts, stop } = await startServerScene(startApache(), {
      settings: { body: { replayUpTo: '64KiB', max: '16MiB' } },
    });
    const seen = await ask('/api/upload', { method: 'POST', body });
    expect([seen.status, seen.body]).toEqual([200, echoOf('POST', '/api/upload', body)]);
    expect(await attempts()).toEqual({ challenged: 1, ok: 1 });
    const log = await stop();
    expect(log.map(({ status, method }) => [status, method])).toEqual([
      [401, 'HEAD'],
      [200, 'POST'],
    ]);
  });

  test('is sent once if its length is unknown', async () => {
    const { ask, stop } = await startServerScene(startApache(), {
      settings: { body: { replayUpTo: '64KiB', max: '16MiB' } },
    });
    const pieces = Array.from({ length: 8 }, (_, at) => body.subarray(at << 20, (at + 1) << 20));
    const seen = await ask('/api/upload', { method: 'PUT', body: Readable.from(pieces) });
    expect([seen.status, seen.body]).toEqual([200, echoOf('PUT', '/api/upload', body)]);
    expect((await stop()).map(({ status, method }) => [status, method])).toEqual([
      [401, 'HEAD'],
      [200, 'PUT'],
    ]);
  });
});

describe('a required client certificate', () => {
  const shown = ({ key, certificate }: ReturnType<typeof makeClientCertificate>) => ({
    clientCertificate: { chain: certificate, key: new Secret(key) },
  });

  test.each(['TLSv1.2', 'TLSv1.3'] as const)('is shown and accepted over %s', async (tlsVersion) => {
    const client = makeClientCertificate();
    const { ask } = await startServerScene(startApache({ client, tlsVersion }), shown(client));
    expect((await ask('/api/abstracts')).body).toBe(echoOf('GET', '/api/abstracts'));
  });

  test.each([
    ['TLSv1.2', 'none', {}],
    ['TLSv1.2', 'another one', shown(makeClientCertificate())],
    ['TLSv1.3', 'none', {}],
    ['TLSv1.3', 'another one', shown(makeClientCertificate())],
  ] as const)('over %s: the client is told if Apache gets %s', async (tlsVersion, _shown, change) => {
    const client = makeClientCertificate();
    const { ask, attempts } = await startServerScene(startApache({ client, tlsVersion }), change);
    const { status, body } = await ask('/api/abstracts');
    expect([status, JSON.parse(body)]).toEqual([
      502,
      expect.objectContaining({
        code: 'upstream-tls',
        detail: expect.stringMatching(/requires a client certificate.*certFile/),
      }),
    ]);
    expect(await attempts()).toEqual({ error: 1 });
  });
});

describe('a nonce with a lifetime of two seconds', () => {
  /** Apache measures a nonce's age to the microsecond; the rest is for its clock and ours. */
  const LIFETIME_MS = 2_000;
  const EXPIRED_MS = LIFETIME_MS + 50;

  test('is replaced by nextnonce under steady traffic', async () => {
    const { ask, attempts, stop } = await startServerScene(startApache({ nonceLifetime: 2 }));
    const end = performance.now() + EXPIRED_MS;
    let asked = 0;
    for (; performance.now() < end; asked += 1) {
      expect((await ask('/api/abstracts')).status).toBe(200);
      await delay(50);
    }
    expect((await ask('/api/abstracts')).status).toBe(200);
    expect(await attempts()).toEqual({ challenged: 1, ok: asked + 1 });
    expect(noncesIn(await stop()).size).toBe(asked + 1);
  });

  test('is replaced for many clients at once after a pause', async () => {
    const { ask, attempts, gateway, stop } = await startServerScene(startApache({ nonceLifetime: 2 }));
    expect((await ask('/api/abstracts')).status).toBe(200);
    await delay(EXPIRED_MS);
    const seen = await Promise.all(Array.from({ length: 20 }, () => ask('/api/abstracts')));
    expect(seen.map(({ status }) => status)).toEqual(seen.map(() => 200));
    const counted = await attempts();
    const log = await stop();
    const refused = log.filter(({ status, authorization }) => status === 401 && authorization !== undefined);
    expect(refused.length).toBeGreaterThan(0);
    expect(counted).toEqual({ challenged: 1, ok: 21, stale: refused.length });
    expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'stale' })).toBe(refused.length);
    // A retry goes out at once and alone, so nothing is refused twice.
    expect(refused.length).toBeLessThanOrEqual(20);
  });

  function noncesIn(log: readonly Logged[]): ReadonlySet<string> {
    return new Set(
      log.flatMap(({ authorization }) => / nonce="([^"]*)"/.exec(authorization ?? '')?.[1] ?? []),
    );
  }
});

describe('a one-time nonce', () => {
  test('costs one upstream request for each client request in sequence', async () => {
    const { ask, attempts, stop } = await startServerScene(startApache({ nonceLifetime: 0 }));
    for (let left = 30; left > 0; left -= 1) expect((await ask('/api/abstracts')).status).toBe(200);
    expect(await attempts()).toEqual({ challenged: 1, ok: 30 });
    expect((await stop()).map(({ status }) => status)).toEqual([
      401,
      ...Array.from({ length: 30 }, () => 200),
    ]);
  });

  test('serves many clients at once', async () => {
    const scene = await startServerScene(startApache({ nonceLifetime: 0 }));
    await expectCrowdsServed(scene, 30);
  });
});

describe('AuthDigestNcCheck', () => {
  test('sees nc rise by one with each of two hundred requests', async () => {
    const { ask, attempts, stop } = await startServerScene(startApache({ checkCount: true }));
    for (let left = 200; left > 0; left -= 1) expect((await ask('/api/abstracts')).status).toBe(200);
    expect(await attempts()).toEqual({ challenged: 1, ok: 200 });
    const counts = (await stop()).flatMap(
      ({ authorization }) => /nc=(\w{8})/.exec(authorization ?? '')?.[1] ?? [],
    );
    expect(counts.map((count) => Number.parseInt(count, 16))).toEqual(counts.map((_, index) => index + 1));
  });

  test('refuses no credential when requests arrive in any order', async () => {
    const scene = await startServerScene(startApache({ checkCount: true }));
    await expectCrowdsServed(scene, 50);
  });
});

describe('a wrong credential', () => {
  async function expectRefusal(asking: ReturnType<ServerScene['ask']>): Promise<void> {
    const { status, headers, body } = await asking;
    expect([status, headers['content-type']]).toEqual([502, 'application/problem+json']);
    expect(JSON.parse(body)).toMatchObject({ status: 502, code: 'upstream-credential-refused' });
    expect(headers['www-authenticate']).toBeUndefined();
  }

  test.each([
    ['password', { password: 'guess' }],
    ['user name', { username: 'nobody-known' }],
  ])('is tried once and confirmed once, however many clients ask: %s', async (_, account) => {
    const { ask, attempts, gateway, stop } = await startServerScene(startApache(), account);
    await Promise.all(Array.from({ length: 20 }, () => expectRefusal(ask('/api/abstracts'))));
    await expectRefusal(ask('/api/abstracts', { method: 'POST', body: 'ids=1' }));
    expect(await attempts()).toEqual({ challenged: 2, refused: 2 });
    const code = 'upstream-credential-refused';
    expect(await gateway.metric('digest_gateway_requests_total', { status: '502', code })).toBe(21);
    const log = await stop();
    expect(log.map(({ status, authorization }) => [status, authorization !== undefined])).toEqual([
      [401, false],
      [401, true],
      [401, false],
      [401, true],
    ]);
  });
});

describe('a rotation under load', () => {
  /**
   * Each turn of the event loop accepts one connection. With one for each request under way, up to 100, the last request
   * of a crowd would wait for 100 turns before the gateway hears of it: 5 s on a busy machine.
   */
  const CONNECTIONS = 20;
  /** The longest delay of a client by a rotation, in milliseconds; a quiet machine takes a tenth of it. */
  const LONGEST_MS = 3_000;

  test.each<[string, ApacheOptions]>([
    ['nonces that everyone uses', {}],
    ['nonces that serve once', { nonceLifetime: 0 }],
    ['counted nonces', { checkCount: true }],
  ])('fails no request: %s', async (title, options) => {
    const { gateway, server, attempts } = await startServerScene(startApache(options));
    gateway.plane.offer(await credentialSet(gateway, 'real', account.password, 'another'));
    const clients = new Pool(gateway.origin, { connections: CONNECTIONS });
    const load = startArrivals(200, async () => {
      const { statusCode, body } = await clients.request({ path: '/api/abstracts', method: 'GET' });
      const content = await body.text();
      if (statusCode !== 200) throw new Error(content);
      return statusCode;
    });
    const rotations = (result: string) =>
      gateway.metric('digest_gateway_credential_rotations_total', { result });
    await until(async () => (await rotations('waiting')) === 1);
    await until(() => load.answered > 200);
    await server.setUsers(apacheUsers('another'));
    const changed = load.answered;
    await until(() => load.answered > changed + 400);
    const { requests, outcomes, seconds, slowestMs, medianMs } = await load.stop();
    await clients.close();
    expect(outcomes).toEqual({ 200: requests });
    expect(slowestMs).toBeLessThan(LONGEST_MS + 10 * medianMs);
    expect([await rotations('promoted'), await rotations('waiting')]).toEqual([1, 1]);
    const { refused = 0 } = await attempts();
    process.stdout.write(
      `Apache, ${title}: ${requests} requests in ${seconds.toFixed(1)} s, 0 failed, ${refused} refused attempts, slowest ${slowestMs.toFixed(0)} ms, median ${medianMs.toFixed(0)} ms\n`,
    );
  });
});
