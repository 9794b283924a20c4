import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { setupFor, startGateway } from '../../support/gateway.ts';
import { startRelay } from '../../support/relay.ts';
import { authors, type RunningScene, startScene } from '../../support/scene.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';

describe('the cost of requests', () => {
  const qops = ['none', 'auth'] as const;

  describe.each(qops)('qop %s', (qop) => {
    test('is one upstream request each once a nonce is known', async () => {
      const { simulator, get } = await startScene({
        behaviour: { qop, nc: qop === 'auth' ? 'window' : 'unchecked' },
      });
      await (await get(authors)).text();
      const before = simulator.counts('submissions').requests;
      const statuses = new Set<number>();
      for (let batch = 0; batch < 10; batch += 1) {
        const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
        for (const answer of answers) {
          statuses.add(answer.status);
          await answer.text();
        }
      }
      expect([...statuses]).toEqual([200]);
      expect(simulator.counts('submissions').requests - before).toBe(200);
    });

    test('is one challenge for 50 clients at once on a cold start', async () => {
      const { simulator, get, gateway } = await startScene({ behaviour: { qop } });
      const answers = await Promise.all(Array.from({ length: 50 }, () => get(authors)));
      expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
      const { challenges, requests } = simulator.counts('submissions');
      expect([challenges, requests]).toEqual([1, 51]);
      expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'cold' })).toBe(1);
      expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'ok' })).toBe(50);
    });
  });

  test('is one handshake on a cold start if the upstream is slow', async () => {
    const { simulator, get } = await startScene({
      behaviour: { faults: [{ kind: 'delay', ms: 100, times: 2 }] },
    });
    const answers = await Promise.all(Array.from({ length: 10 }, () => get(authors)));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
    expect(simulator.counts('submissions').challenges).toBe(1);
  });

  test('is one handshake more if the client of the first one leaves', async () => {
    const { simulator, get } = await startScene({ behaviour: { faults: [{ kind: 'hang', times: 1 }] } });
    const leaving = new AbortController();
    const first = get(authors, { signal: leaving.signal }).catch((error: Error) => error.name);
    await requestsReach(simulator, 1);
    const others = Array.from({ length: 5 }, () => get(authors));
    leaving.abort();
    expect(await first).toBe('AbortError');
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual(Array(5).fill(200));
    expect(simulator.counts('submissions').challenges).toBe(1);
  });

  async function requestsReach(
    simulator: { counts(name: 'submissions'): { requests: number } },
    wanted: number,
  ): Promise<void> {
    while (simulator.counts('submissions').requests < wanted) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
});

describe('the reuse policy', () => {
  const ATTEMPTS = 'digest_gateway_upstream_attempts_total';
  const POLICY = 'digest_gateway_nonce_policy';

  async function crowds({ get }: RunningScene, rounds: number): Promise<Set<number>> {
    const statuses = new Set<number>();
    for (let round = 0; round < rounds; round += 1) {
      const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
      for (const answer of answers) {
        statuses.add(answer.status);
        await answer.text();
      }
    }
    return statuses;
  }

  /** Statuses of requests that one client sends, each after the response to the last one. */
  async function sequence({ get }: RunningScene, requests: number): Promise<number[]> {
    const statuses: number[] = [];
    for (let sent = 0; sent < requests; sent += 1) {
      const response = await get(authors);
      await response.text();
      statuses.push(response.status);
    }
    return statuses;
  }

  /** A gateway that has found out this policy. On a busy machine the requests of a crowd may come one by one. */
  async function settled(
    policy: string,
    behaviour: BehaviourChange,
    options: { relay?: boolean } = {},
  ): Promise<RunningScene> {
    const pair = await startScene({ behaviour, ...options });
    await until(async () => {
      expect(await crowds(pair, 8)).toEqual(new Set([200]));
      return (await pair.gateway.metric(POLICY, { policy })) === 1;
    });
    return pair;
  }

  /** Counts of a further 100 requests: upstream requests, and refused nonces. */
  async function costOf(
    pair: RunningScene,
  ): Promise<{ requests: number; stale: number; violations: number }> {
    const { simulator, gateway } = pair;
    const seen = async () => {
      const { requests, ncViolations } = simulator.counts('submissions');
      return {
        requests,
        violations: ncViolations,
        stale: await gateway.metric(ATTEMPTS, { result: 'stale' }),
      };
    };
    const before = await seen();
    expect(await crowds(pair, 5)).toEqual(new Set([200]));
    const after = await seen();
    return {
      requests: after.requests - before.requests,
      stale: after.stale - before.stale,
      violations: after.violations - before.violations,
    };
  }

  describe('is learned:', () => {
    test('exclusive where nc has to rise', async () => {
      const rising = { nc: 'rising', refusedNcKillsNonce: true, staleFlag: 'never' } as const;
      const pair = await settled('exclusive', { qop: 'auth', ...rising }, { relay: true });
      expect(await costOf(pair)).toEqual({ requests: 100, stale: 0, violations: 0 });
    });

    test.each([
      ['refuses a count that comes late', false],
      ['drops a nonce whose count comes late', true],
    ])(
      'exclusive, once and for all, within three events where the upstream %s',
      async (_title, isDropped) => {
        const clients = 16;
        const rising = { nc: 'rising', refusedNcKillsNonce: isDropped, staleFlag: 'always' } as const;
        // Requests overtake each other, and so do their responses.
        let passed = 0;
        const relay = (port: number) =>
          startRelay(port, () => {
            passed += 1;
            return { requestMs: passed % 4, answerMs: (passed * 37) % 100 };
          });
        const pair = await startScene({ behaviour: { qop: 'auth', ...rising }, relay });
        const statuses = await Promise.all(Array.from({ length: clients }, () => sequence(pair, 20)));
        expect(new Set(statuses.flat())).toEqual(new Set([200]));
        expect(pair.gateway.logged.map(({ policy }) => policy)).toEqual(['exclusive']);
        const { nonces, refused } = pair.simulator.counts('submissions');
        const overtaken = nonces.filter(({ ncs }) => ncs.some((nc, at) => nc < (ncs[at - 1] ?? 0)));
        expect(overtaken.length).toBeLessThanOrEqual(3);
        // Beside the first of each event, those that were under way.
        expect(refused.nc + refused['nonce-unknown']).toBeLessThanOrEqual(3 * (clients - 1));
      },
    );

    test('single-use where nonces serve once', async () => {
      const pair = await settled('single-use', { oneTimeNonces: true, staleFlag: 'never' });
      expect(await costOf(pair)).toEqual({ requests: 200, stale: 0, violations: 0 });
      const reason = { reason: 'single_use' };
      expect(await pair.gateway.metric('digest_gateway_challenges_total', reason)).toBeGreaterThanOrEqual(
        100,
      );
    });

    test('exclusive, in chains, where the upstream sends nextnonce', async () => {
      const pair = await settled('exclusive', {
        qop: 'auth',
        oneTimeNonces: true,
        nextnonce: 'always',
        staleFlag: 'never',
      });
      expect(await costOf(pair)).toEqual({ requests: 100, stale: 0, violations: 0 });
    });

    test('shared where nothing contradicts it; each step is logged once', async () => {
      const pair = await settled('shared', { qop: 'auth', nc: 'window' });
      expect(await costOf(pair)).toEqual({ requests: 100, stale: 0, violations: expect.any(Number) });
      expect(pair.gateway.logged).toEqual([]);
    });
  });
});

test('nextnonce of a response is used, whatever its status', async () => {
  for (const qop of ['', ', qop="auth"']) {
    const statuses = [200, 404, 500, 304, 403];
    const answers: string[] = [];
    await using upstream = await startUpstream(({ headers }, res) => {
      const { authorization } = headers;
      if (authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': `Digest realm="r", nonce="n0"${qop}` }).end();
        return;
      }
      answers.push(authorization);
      const next = `nextnonce="n${answers.length}"`;
      res.writeHead(statuses[answers.length - 1] ?? 200, { 'authentication-info': next }).end();
    });
    const settings = { tls: { allowPlaintext: true } };
    await using gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
    for (const status of statuses) expect((await fetch(gateway.origin)).status).toBe(status);
    const values = (name: RegExp) => answers.map((answer) => name.exec(answer)?.[1]);
    expect(values(/ nonce="([^"]*)"/)).toEqual(statuses.map((_, index) => `n${index}`));
    if (qop === '') continue;
    expect(values(/ nc=(\w+)/)).toEqual(statuses.map(() => '00000001'));
    const cnonces = values(/ cnonce="([0-9a-f]{32,})"/);
    expect([cnonces.includes(undefined), new Set(cnonces).size]).toEqual([false, statuses.length]);
  }
});

describe('a nonce count', () => {
  const ROUNDS = 6;
  const CLIENTS = 10;

  /** Statuses of requests that were sent together. */
  async function crowd({ get }: RunningScene): Promise<number[]> {
    const responses = await Promise.all(Array.from({ length: CLIENTS }, () => get(authors)));
    await Promise.all(responses.map((response) => response.text()));
    return responses.map(({ status }) => status);
  }

  /** Gives the deployment another setting, so that its upstream is replaced. */
  async function reload(
    { simulator, gateway }: RunningScene,
    settings: Record<string, unknown>,
  ): Promise<void> {
    const { origin } = simulator.deployments.submissions;
    const upstream = { origin, ca: simulator.ca, settings };
    await gateway.app.reload(async () => setupFor({ submissions: upstream }, {}, gateway.versions));
  }

  /** How often a count came again with the nonce that it had come with. */
  function duplicates({ simulator }: RunningScene): number {
    const { nonces } = simulator.counts('submissions');
    return nonces.reduce((sum, { ncs }) => sum + ncs.length - new Set(ncs).size, 0);
  }

  test.each([
    ['shared', 'window'],
    ['exclusive', 'rising'],
  ] as const)('is never used twice when connections break during a reload: %s', async (policy, nc) => {
    const digest = { noncePolicy: policy };
    const pair = await startScene({ behaviour: { qop: 'auth', nc }, settings: { digest } });
    const { simulator } = pair;
    expect(await crowd(pair)).toEqual(Array(CLIENTS).fill(200));
    for (let round = 1; round <= ROUNDS; round += 1) {
      simulator.set('submissions', {
        faults: [
          { kind: 'reset-before-head', times: 4, when: 'authenticated' },
          { kind: 'delay', ms: 40, when: 'authenticated', times: CLIENTS },
        ],
      });
      const { accepted } = simulator.counts('submissions');
      const broken = crowd(pair);
      await until(() => simulator.counts('submissions').accepted >= accepted + 4);
      await reload(pair, { digest, connections: 20 + round });
      const [statuses, others] = await Promise.all([broken, crowd(pair)]);
      expect([round, ...statuses, ...others]).toEqual([round, ...Array(2 * CLIENTS).fill(200)]);
    }
    expect(simulator.counts('submissions').faults['reset-before-head']).toBe(4 * ROUNDS);
    expect(duplicates(pair)).toBe(0);
  });
});
