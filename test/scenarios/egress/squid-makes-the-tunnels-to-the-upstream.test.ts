import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../../src/base/secret.ts';
import { startProxiedPair } from '../../support/proxied-pair.ts';
import { authors, problemOf } from '../../support/simulated-pair.ts';
import { proxyAccount } from '../../support/squid.ts';

const CROWD = 20;

/** All at once, so that there are several connections. */
async function statusesOfCrowd(ask: () => Promise<Response>): Promise<number[]> {
  const answers = await Promise.all(Array.from({ length: CROWD }, ask));
  await Promise.all(answers.map((answer) => answer.arrayBuffer()));
  return [...new Set(answers.map(({ status }) => status))];
}

describe('a Squid that asks for nothing', () => {
  test('tunnels every connection, and what the upstream says comes back', async () => {
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
    ['expired', 'has expired'],
    ['foreign', 'authority that is not trusted'],
    ['wrong-host', 'for another host'],
  ] as const)('the certificate of the upstream is verified through it: %s', async (tls, reason) => {
    const { get, simulator } = await startProxiedPair({}, { behaviour: { tls } });
    const problem = await problemOf(await get(authors));
    expect([problem.code, problem.detail]).toEqual(['upstream-tls', expect.stringContaining(reason)]);
    expect(simulator.counts('submissions').requests).toBe(0);
  });

  test('and dies under a request: the client is told, and the next request is served', async () => {
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
      detail: expect.stringContaining('The proxy refused the connection'),
    });
  });
});

describe.each(['http', 'https'])('a Squid behind %s', (scheme) => {
  const tls = scheme === 'https';

  test.each(['basic', 'digest'] as const)('that wants %s gets it, whatever comes at once', async (auth) => {
    const { get, end, gateway } = await startProxiedPair({ auth, tls });
    expect(await statusesOfCrowd(() => get(authors))).toEqual([200]);
    expect(await statusesOfCrowd(() => get('/bytes/1000'))).toEqual([200]);
    expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'error' })).toBe(0);
    const tunnels = (await end()).filter(({ status }) => status === 200);
    expect(new Set(tunnels.map(({ user }) => user))).toEqual(new Set([proxyAccount.username]));
    const told = JSON.stringify(gateway.logged);
    expect(told).not.toContain(proxyAccount.password);
    expect(told).not.toMatch(/Digest |Basic /);
  });
});

test('a Squid behind https is trusted only with a certificate of its authority', async () => {
  const { get } = await startProxiedPair({ tls: true }, { proxyCa: undefined });
  const problem = await problemOf(await get(authors));
  expect(problem).toMatchObject({
    code: 'upstream-unreachable',
    detail: expect.stringMatching(
      /^The TLS connection to the proxy cannot be trusted: .* authority that is not trusted/,
    ),
  });
});

describe('what Squid refuses is told as such', () => {
  test.each(['basic', 'digest'] as const)('a wrong password for %s, which it sees once', async (auth) => {
    const { get, end, gateway } = await startProxiedPair({ auth }, { password: 'guess' });
    for (let index = 0; index < 5; index += 1) {
      const problem = await problemOf(await get(authors));
      expect(problem).toMatchObject({
        status: 502,
        code: 'upstream-unreachable',
        detail: expect.stringContaining('The proxy refuses its credential (egress.proxy.credential)'),
      });
    }
    expect(JSON.stringify(gateway.logged)).not.toContain('guess');
    expect((await end()).map(({ status }) => status)).toEqual([407, 407]);
  });

  test('and a right password is used from the moment that its source has it', async () => {
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
    gateway.app.offer({ name: 'proxy', current, next: undefined });
    expect((await get(authors)).status).toBe(200);
  });

  test('no credential, where it wants one', async () => {
    const { get } = await startProxiedPair({ auth: 'digest' }, { password: undefined });
    expect((await problemOf(await get(authors))).detail).toContain('name one in egress.proxy.credential');
  });

  test('an upstream that its rules do not allow', async () => {
    const { get, simulator } = await startProxiedPair({ deny: true });
    expect((await problemOf(await get(authors))).detail).toContain('it answered CONNECT with 403');
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
