import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../../src/base/secret.ts';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { addressMissing, whyNoTls } from '../../../src/transport/errors.ts';
import { proxyAuthenticationError, proxyRefuses } from '../../../src/transport/proxy-errors.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { startRelay } from '../../support/relay.ts';
import { authors, problemOf, type RunningScene, startScene } from '../../support/scene.ts';
import {
  proxyAccount,
  type Squid,
  type SquidOptions,
  startSquid,
  type Tunnelled,
} from '../../support/squid.ts';
import { until } from '../../support/until.ts';

describe('egress.localAddress', () => {
  const REGISTERED = '127.0.0.2';
  /** TEST-NET-1, RFC 5737: nobody's. */
  const ELSEWHERE = '192.0.2.1';

  const from = (localAddress: string): Record<string, unknown> => ({ egress: { localAddress } });

  interface Readiness {
    readonly status: string;
    readonly checks: readonly { readonly name: string; readonly ok: boolean; readonly detail: string }[];
  }

  async function readinessOf({
    gateway,
  }: RunningScene): Promise<{ http: number; status: string; detail: string }> {
    const answer = await fetch(`${gateway.control}/readyz`);
    const { status, checks } = (await answer.json()) as Readiness;
    const detail = checks.find(({ name }) => name === 'deployment:submissions')?.detail ?? 'no such check';
    return { http: answer.status, status, detail };
  }

  describe('where the upstream accepts one address', () => {
    const behaviour = { allowedAddresses: [REGISTERED] };

    test('is needed: another address is refused', async () => {
      const { get } = await startScene({ behaviour });
      expect((await get(authors)).status).toBe(403);
    });

    test('is the source address of requests', async () => {
      const pair = await startScene({ behaviour, settings: from(REGISTERED) });
      expect((await pair.get(authors)).status).toBe(200);
      expect(await readinessOf(pair)).toEqual({ http: 200, status: 'ok', detail: '' });
      expect(
        await pair.gateway.metric('digest_gateway_egress_address_present', { deployment: 'submissions' }),
      ).toBe(1);
    });
  });

  test('is never replaced by another address if it is not on this host', async () => {
    const pair = await startScene({ settings: from(ELSEWHERE) });
    const problem = await problemOf(await pair.get(authors));
    expect(problem).toMatchObject({ status: 502, code: 'upstream-unreachable' });
    expect(problem.detail).toBe(addressMissing(undefined).detail);
    expect(problem.detail).not.toContain(ELSEWHERE);
    expect(await readinessOf(pair)).toEqual({
      http: 503,
      status: 'down',
      detail: expect.stringContaining('egress.localAddress'),
    });
    const text = await (await fetch(`${pair.gateway.control}/metrics`)).text();
    expect(text).toContain('digest_gateway_egress_address_present{deployment="submissions"} 0');
    expect(pair.gateway.logged[0]).toMatchObject({
      level: 'warn',
      deployment: 'submissions',
      msg: 'egress.localAddress is not an address of this host; requests fail until it is',
    });
    expect(pair.simulator.counts('submissions').connections).toBe(0);
  });

  test('is not checked if it is not set', async () => {
    const { gateway } = await startScene();
    const text = await (await fetch(`${gateway.control}/metrics`)).text();
    expect(text).not.toContain('digest_gateway_egress_address_present{');
  });

  test('is the source address of connections to a proxy', async () => {
    const proxy = { url: 'http://127.0.0.1:9' };
    const { get } = await startScene({ settings: { egress: { localAddress: ELSEWHERE, proxy } } });
    expect((await problemOf(await get(authors))).detail).toBe(addressMissing(undefined).detail);
  });
});

interface ProxiedPair extends RunningScene {
  readonly squid: Squid;
  /** Ends every tunnel; resolves to the CONNECTs that Squid saw, in the order of their ends. */
  end(): Promise<Tunnelled[]>;
}

interface ProxiedOptions {
  readonly behaviour?: BehaviourChange;
  /** Password of the proxy's credential; undefined: there is no credential. */
  readonly password?: string | undefined;
  /** Further settings of the proxy, by its URL. */
  readonly proxy?: (url: string) => Record<string, unknown>;
  /** PEM of the authority that is trusted for a proxy with TLS; its own when left out. */
  readonly proxyCa?: string | undefined;
  /** Further settings of the deployment. */
  readonly settings?: Record<string, unknown>;
}

/** A gateway that reaches the simulator through Squid only. */
async function startProxiedPair(
  squidOptions: SquidOptions,
  options: ProxiedOptions = {},
): Promise<ProxiedPair> {
  const squid = await closedAtEnd(startSquid(squidOptions));
  const { behaviour = {}, settings = {} } = options;
  const password = 'password' in options ? options.password : proxyAccount.password;
  const ownCa = squidOptions.tls === true ? squid.ca : undefined;
  const proxyCa = 'proxyCa' in options ? options.proxyCa : ownCa;
  const withCredential = squidOptions.auth !== undefined && password !== undefined;
  const proxy = {
    url: squid.url,
    ...(withCredential && { credential: 'proxy' }),
    ...options.proxy?.(squid.url),
  };
  const pair = await startScene({
    behaviour, // A check would use the proxy, too, and be counted there.
    settings: { egress: { proxy }, health: { interval: 'off' }, ...settings },
    ...(proxyCa !== undefined && { proxyCa }),
    ...(withCredential && {
      credentials: { proxy: { username: { value: proxyAccount.username }, password: { value: password } } },
    }),
  });
  return {
    ...pair,
    squid,
    end: async () => {
      await pair.gateway.close();
      const tunnels = pair.simulator.counts('submissions').connections;
      let log: Tunnelled[] = [];
      await until(async () => {
        log = await squid.log();
        return log.filter(({ status }) => status === 200).length === tunnels;
      });
      return log;
    },
  };
}

describe('a forward proxy (Squid)', () => {
  const CROWD = 20;

  /** All at once, so that there are several connections. */
  async function statusesOfCrowd(ask: () => Promise<Response>): Promise<number[]> {
    const answers = await Promise.all(Array.from({ length: CROWD }, ask));
    await Promise.all(answers.map((answer) => answer.arrayBuffer()));
    return [...new Set(answers.map(({ status }) => status))];
  }

  describe('without authentication', () => {
    test('tunnels every connection', async () => {
      const { get, end, simulator } = await startProxiedPair({});
      const answer = await get(authors);
      expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('<response>')]);
      expect(await statusesOfCrowd(() => get(authors))).toEqual([200]);
      const seen = await end();
      const { port } = simulator.deployments.submissions;
      expect(new Set(seen.map(({ status, target }) => `${status} ${target}`))).toEqual(
        new Set([`200 127.0.0.1:${port}`]),
      );
    });

    test.each([
      ['expired', 'CERT_HAS_EXPIRED'],
      ['foreign', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
      ['wrong-host', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ] as const)('leaves the verification of the certificate to the gateway: %s', async (tls, cause) => {
      const { get, simulator } = await startProxiedPair({}, { behaviour: { tls } });
      const problem = await problemOf(await get(authors));
      expect(problem.code).toBe('upstream-tls');
      expect(problem.detail).toContain(whyNoTls(cause));
      expect(simulator.counts('submissions').requests).toBe(0);
    });

    test('that dies during a request: the client gets an error, the next request is served', async () => {
      const { get, squid } = await startProxiedPair(
        {},
        { behaviour: { faults: [{ kind: 'hang', when: 'authenticated', times: 2 }] } },
      );
      const asked = get('/echo', { method: 'POST', body: 'x' });
      await squid.close();
      expect((await problemOf(await asked)).code).toBe('upstream-unreachable');
      const problem = await problemOf(await get(authors));
      expect(problem).toMatchObject({
        status: 502,
        detail: expect.stringContaining('egress.proxy.url'),
      });
    });
  });

  describe.each(['http', 'https'])('over %s', (scheme) => {
    const tls = scheme === 'https';

    test.each(['basic', 'digest'] as const)(
      'is authenticated to with %s under concurrent requests',
      async (auth) => {
        const { get, end, gateway } = await startProxiedPair({ auth, tls });
        expect(await statusesOfCrowd(() => get(authors))).toEqual([200]);
        expect(await statusesOfCrowd(() => get('/bytes/1000'))).toEqual([200]);
        expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'error' })).toBe(0);
        const tunnels = (await end()).filter(({ status }) => status === 200);
        expect(new Set(tunnels.map(({ user }) => user))).toEqual(new Set([proxyAccount.username]));
        const told = JSON.stringify(gateway.logged);
        expect(told).not.toContain(proxyAccount.password);
        expect(told).not.toMatch(/Digest |Basic /);
      },
    );
  });

  test('of two servers behind one address, one with Basic and one with Digest, serves every client', async () => {
    const squids = await Promise.all([
      closedAtEnd(startSquid({ auth: 'basic' })),
      closedAtEnd(startSquid({ auth: 'digest' })),
    ]);
    const ports = squids.map(({ url }) => Number(new URL(url).port));
    const relay = await closedAtEnd(startRelay(0, (connection) => ({ port: ports[connection % 2] ?? 0 })));
    const { username, password } = proxyAccount;
    const { get, gateway } = await startScene({
      settings: {
        egress: { proxy: { url: `http://127.0.0.1:${relay.port}`, credential: 'proxy' } },
        health: { interval: 'off' },
      },
      credentials: { proxy: { username: { value: username }, password: { value: password } } },
    });
    expect((await get(authors)).status).toBe(200);
    for (let round = 0; round < 3; round += 1)
      expect(await statusesOfCrowd(() => get(authors))).toEqual([200]);
    expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'error' })).toBe(0);
    await gateway.close();
    for (const squid of squids) {
      await until(async () => (await squid.log()).some(({ status }) => status === 200));
    }
  });

  // 0.0.0.0 reaches this machine on Linux, and is no loopback address.
  const elsewhere = (url: string): string => url.replace('127.0.0.1', '0.0.0.0');

  describe.each(['basic', 'digest'] as const)(
    'without TLS that is not on loopback and asks for %s',
    (auth) => {
      test('is authenticated to if allowPlaintext is true', async () => {
        const proxy = (url: string) => ({ url: elsewhere(url), allowPlaintext: true });
        const { get } = await startProxiedPair({ auth }, { proxy });
        expect((await get(authors)).status).toBe(200);
      });

      test('is no configuration otherwise', async () => {
        const proxy = (url: string) => ({ url: elsewhere(url) });
        await expect(startProxiedPair({ auth }, { proxy })).rejects.toThrow('allowPlaintext');
      });
    },
  );

  test('over https is trusted only with a certificate of its authority', async () => {
    const { get } = await startProxiedPair({ tls: true }, { proxyCa: undefined });
    const problem = await problemOf(await get(authors));
    expect(problem).toMatchObject({
      code: 'upstream-unreachable',
      detail: expect.stringContaining(String(whyNoTls('UNABLE_TO_VERIFY_LEAF_SIGNATURE'))),
    });
  });

  describe('refuses, and the client is told:', () => {
    test.each(['basic', 'digest'] as const)('a wrong password for %s, which it sees once', async (auth) => {
      const { get, end, gateway, squid } = await startProxiedPair({ auth }, { password: 'guess' });
      for (let index = 0; index < 5; index += 1) {
        const problem = await problemOf(await get(authors));
        expect(problem).toMatchObject({
          status: 502,
          code: 'upstream-unreachable',
          detail: proxyAuthenticationError('credential-refused').detail,
        });
      }
      expect(JSON.stringify(gateway.logged)).not.toContain('guess');
      await end();
      // Squid writes a line when it has closed the connection.
      await until(async () => (await squid.log()).length >= 2);
      expect((await squid.log()).map(({ status }) => status)).toEqual([407, 407]);
    });

    test('until the source of the password has the right one', async () => {
      const { get, gateway } = await startProxiedPair({ auth: 'digest' }, { password: 'guess' });
      expect((await get(authors)).status).toBe(502);
      const { username, password } = proxyAccount;
      const current = {
        name: 'proxy',
        version: '2',
        changedAt: undefined,
        username,
        password: new Secret(password),
      };
      gateway.plane.offer({ name: 'proxy', current, next: undefined });
      expect((await get(authors)).status).toBe(200);
    });

    test('a missing credential', async () => {
      const { get } = await startProxiedPair({ auth: 'digest' }, { password: undefined });
      expect((await problemOf(await get(authors))).detail).toBe(
        proxyAuthenticationError('no-credential').detail,
      );
    });

    test('Digest with an algorithm that the deployment does not allow, which it does not answer', async () => {
      const { get, end, squid, simulator } = await startProxiedPair(
        { auth: 'digest' },
        { behaviour: { algorithms: ['SHA-256'] }, settings: { digest: { algorithms: ['SHA-256'] } } },
      );
      expect((await problemOf(await get(authors))).detail).toBe(
        proxyAuthenticationError('weak-challenge').detail,
      );
      await end();
      await until(async () => (await squid.log()).length > 0);
      expect((await squid.log()).map(({ status, user }) => [status, user])).toEqual([[407, '-']]);
      expect(simulator.counts('submissions').connections).toBe(0);
    });

    test('an upstream that its rules do not allow', async () => {
      const { get, simulator } = await startProxiedPair({ deny: true });
      expect((await problemOf(await get(authors))).detail).toBe(proxyRefuses(403).detail);
      expect(simulator.counts('submissions').connections).toBe(0);
    });

    test('an upstream that it cannot reach', async () => {
      const { get, simulator } = await startProxiedPair({});
      await simulator.close();
      expect((await problemOf(await get(authors))).detail).toContain(
        'The proxy did not reach the upstream: it answered CONNECT with 503',
      );
    });
  });
});
