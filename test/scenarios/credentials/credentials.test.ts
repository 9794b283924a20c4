import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { credentialSet, setupFor } from '../../support/gateway.ts';
import { authors, problemOf, type RunningScene, startScene } from '../../support/scene.ts';

describe('a site', () => {
  const SITES = ['journal-a', 'journal-b', 'journal c'];
  const accounts = SITES.map((site) => ({
    username: `user of ${site}`,
    password: `key of ${site}`,
    sites: [site],
  }));
  const credentials = Object.fromEntries(
    SITES.map((site, index) => [
      `c${index}`,
      { username: { value: `user of ${site}` }, password: { value: `key of ${site}` } },
    ]),
  );
  const sites = Object.fromEntries(SITES.map((site, index) => [site, { credential: `c${index}` }]));
  const settings = { credential: undefined, siteParameter: 'site_name', sites };

  const asking = (query: string) => authors.replace('site_name=demo', query);

  /** A gateway in front of a service with an account for each site. */
  async function startSites(top: Record<string, unknown> = { credentials }): Promise<RunningScene> {
    const pair = await startScene({ behaviour: { accounts, qop: 'auth', nc: 'window' } });
    const { origin } = pair.simulator.deployments.submissions;
    const deployment = { origin, ca: pair.simulator.ca, settings };
    await pair.gateway.app.reload(async () =>
      setupFor({ submissions: deployment }, top, pair.gateway.versions),
    );
    return pair;
  }

  test('gets the responses of its own account, with nonces of its own', async () => {
    const pair = await startSites();
    const queries = ['site_name=journal-a', 'site_name=journal%2Db', 'site_name=journal%20c'];
    const targets = Array.from({ length: 40 }, (_, index) => asking(queries[index % queries.length] ?? ''));
    const answers = await Promise.all(targets.map((target) => pair.get(target)));
    expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(200));
    const { challenges, refused, refusedBySite, distinctNonces } = pair.simulator.counts('submissions');
    expect([challenges, distinctNonces, refusedBySite, refused['wrong-response']]).toEqual([3, 3, 0, 0]);
    const inUse = await pair.gateway.metric('digest_gateway_credential_state', {
      deployment: 'submissions',
      state: 'in-use',
    });
    expect(inUse).toBe(3);
  });

  test('is not affected by the refused credential of another', async () => {
    const broken = {
      ...credentials,
      c1: { username: { value: 'user of journal-b' }, password: { value: 'wrong' } },
    };
    const pair = await startSites({ credentials: broken });
    const statusOf = async (site: string) => (await pair.get(asking(`site_name=${site}`))).status;
    expect([await statusOf('journal-a'), await statusOf('journal-b'), await statusOf('journal-a')]).toEqual([
      200, 502, 200,
    ]);
    const readiness = await fetch(`${pair.gateway.control}/readyz`);
    expect([readiness.status, await readiness.text()]).toEqual([
      200,
      expect.stringContaining('credential c1'),
    ]);
  });
});

describe('a stored hash', () => {
  const REALM = 'ExampleApiService';
  const NAMES = { md5: 'md5', sha256: 'sha256', 'sha512-256': 'sha512-256' } as const;

  /** The credential of the simulator's account, without its password. */
  function stored(hashes: readonly (keyof typeof NAMES)[], realm = REALM): Record<string, unknown> {
    const a1 = `demo-user:${realm}:demo-api-key`;
    const entries = hashes.map((name) => [name, { value: createHash(NAMES[name]).update(a1).digest('hex') }]);
    return { username: { value: 'demo-user' }, ha1: { realm, ...Object.fromEntries(entries) } };
  }

  test.each([
    ['MD5', ['md5']],
    ['MD5-sess', ['md5']],
    ['SHA-256', ['sha256']],
    ['SHA-256-sess', ['md5', 'sha256']],
    ['SHA-512-256', ['sha512-256']],
  ] as const)('is used for a challenge of %s', async (algorithm, hashes) => {
    const { simulator, get } = await startScene({
      behaviour: { algorithms: [algorithm], qop: 'auth' },
      credential: stored(hashes),
    });
    for (let count = 0; count < 3; count += 1) expect((await get(authors)).status).toBe(200);
    expect(simulator.counts('submissions').challenges).toBe(1);
  });

  test('is used for the one of several challenges that it fits', async () => {
    const { get } = await startScene({
      behaviour: { algorithms: ['SHA-256', 'MD5'], qop: 'auth' },
      credential: stored(['md5']),
    });
    expect((await get(authors)).status).toBe(200);
  });

  test.each([
    ['another realm', stored(['md5'], 'OtherService'), /^(?!.*\bMD5\b).*\brealm\b.*\bha1\b/],
    ['an algorithm without hash', stored(['sha256']), /\bMD5\b.*\bha1\b/],
  ])('%s: the client gets an error, and no Authorization is sent', async (_title, credential, detail) => {
    const { simulator, get, gateway } = await startScene({ credential });
    const answers = await Promise.all(Array.from({ length: 5 }, () => get(authors)));
    for (const answer of answers) {
      const problem = await problemOf(answer);
      expect([problem.status, problem.code, problem.detail]).toEqual([
        503,
        'credential-unavailable',
        expect.stringMatching(detail),
      ]);
      expect(answer.headers.get('retry-after')).toBe('30');
    }
    const { requests, unauthenticated } = simulator.counts('submissions');
    expect(unauthenticated).toBe(requests);
    expect(await gateway.metric('digest_gateway_requests_total', { code: 'credential-unavailable' })).toBe(5);
  });
});

describe('a doubted credential', () => {
  const CROWD = 50;
  const NAME = 'submissions';

  function crowd({ get }: RunningScene): Promise<Response[]> {
    return Promise.all(Array.from({ length: CROWD }, () => get(authors)));
  }

  const statuses = (answers: readonly Response[]) => new Set(answers.map(({ status }) => status));

  /** Attempts with a nonce of their own that were refused: each of them could have been spared but the first. */
  const refusals = ({ gateway }: RunningScene) =>
    gateway.metric('digest_gateway_upstream_attempts_total', { result: 'refused' });

  function changePassword({ simulator }: RunningScene, password: string): void {
    simulator.set(NAME, { accounts: [{ username: 'demo-user', password, sites: ['demo'] }] });
  }

  test('costs two attempts beyond the requests under way: a probe and its confirmation', async () => {
    const pair = await startScene({ behaviour: { faults: [{ kind: 'delay', ms: 50 }] } });
    expect((await pair.get(authors)).status).toBe(200);
    changePassword(pair, 'changed');
    expect(statuses(await crowd(pair))).toEqual(new Set([502]));
    expect(await refusals(pair)).toBe(2);
    expect(pair.simulator.counts(NAME).refused['wrong-response']).toBeLessThanOrEqual(CROWD + 2);
  });

  test.each(['auto', 'exclusive', 'single-use'])(
    'with every version wrong, two attempts in each minute reach the upstream, after two with each: %s',
    async (noncePolicy) => {
      let now = 0;
      const pair = await startScene({
        behaviour: { lockout: { failures: 20, durationMs: 60_000 } },
        password: 'wrong',
        clock: { now: () => now },
        settings: { digest: { noncePolicy } },
      });
      pair.gateway.plane.offer(await credentialSet(pair.gateway, NAME, 'wrong', 'wrong, too'));
      const attempts: number[] = [];
      let before = 0;
      for (let second = 0; second <= 240; second += 10) {
        now = second * 1000;
        expect(statuses(await crowd(pair))).toEqual(new Set([502]));
        const { refused } = pair.simulator.counts(NAME);
        for (; before < refused['wrong-response']; before += 1) attempts.push(second);
      }
      expect(attempts).toEqual([0, 0, 0, 0, 60, 90, 120, 150, 180, 210, 240]);
      expect(pair.simulator.counts(NAME).lockedOut).toBe(0);
      const answer = await fetch(`${pair.gateway.control}/readyz`);
      expect([answer.status, await answer.text()]).toEqual([
        503,
        expect.stringContaining('credential submissions'),
      ]);
    },
  );

  test('is tried attemptsWhenRefused times a minute', async () => {
    let now = 0;
    const settings = { digest: { attemptsWhenRefused: 6 } };
    const pair = await startScene({ password: 'wrong', clock: { now: () => now }, settings });
    for (let second = 0; second < 60; second += 5) {
      now = second * 1000;
      expect((await problemOf(await pair.get(authors))).code).toBe('upstream-credential-refused');
    }
    expect(pair.simulator.counts(NAME).refused['wrong-response']).toBe(6);
  });

  test('takes turns with its other version until one is accepted', async () => {
    let now = 0;
    const pair = await startScene({ password: 'wrong', clock: { now: () => now } });
    pair.gateway.plane.offer(await credentialSet(pair.gateway, NAME, 'wrong', 'later'));
    expect((await pair.get(authors)).status).toBe(502);
    changePassword(pair, 'later');
    const seen: number[] = [];
    for (const second of [30, 60, 90]) {
      now = second * 1000;
      seen.push((await pair.get(authors)).status);
    }
    expect(seen).toEqual([502, 502, 200]);
  });

  test('is not a credential whose nonce was refused without stale', async () => {
    const pair = await startScene({ behaviour: { staleFlag: 'never', faults: [{ kind: 'delay', ms: 30 }] } });
    for (let round = 0; round < 3; round += 1) {
      expect(statuses(await crowd(pair))).toEqual(new Set([200]));
      pair.simulator.reset(NAME);
    }
    expect(await refusals(pair)).toBe(0);
  });
});

describe('a refused credential', () => {
  const HALF_A_MINUTE = 30_000;

  async function startRefused(): Promise<RunningScene & { advance(): void }> {
    let now = 0;
    const pair = await startScene({
      behaviour: { lockout: { failures: 6, durationMs: 60_000 } },
      password: 'wrong',
      clock: { now: () => now },
    });
    expect((await problemOf(await pair.get(authors))).code).toBe('upstream-credential-refused');
    // The attempts of this minute are made: that of the client, and one of the gateway.
    now += HALF_A_MINUTE;
    const advance = (): void => {
      now += HALF_A_MINUTE;
    };
    return { ...pair, advance };
  }

  test('reaches the upstream once each half minute, however many clients ask', async () => {
    const { simulator, get, advance } = await startRefused();
    for (let trial = 1; trial <= 3; trial += 1) {
      advance();
      const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([502]));
      expect(simulator.counts('submissions').refused['wrong-response']).toBe(2 + trial);
    }
    expect(simulator.counts('submissions').lockedOut).toBe(0);
  });

  test('is accepted by the next attempt after the upstream has its password', async () => {
    const { simulator, gateway, get, advance } = await startRefused();
    simulator.set('submissions', {
      accounts: [{ username: 'demo-user', password: 'wrong', sites: ['demo'] }],
    });
    expect((await get(authors)).status).toBe(502);
    const circuit = { deployment: 'submissions' };
    expect(await gateway.metric('digest_gateway_circuit_state', circuit)).toBe(1);
    advance();
    const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
    expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThan(0);
    expect((await get(authors)).status).toBe(200);
    expect(await gateway.metric('digest_gateway_circuit_state', circuit)).toBe(0);
  });

  test('is tried by the next request if what the gateway asks itself shows nothing', async () => {
    const { simulator, get, advance } = await startRefused();
    simulator.set('submissions', {
      accounts: [{ username: 'demo-user', password: 'wrong', sites: ['demo'] }],
      faults: [{ kind: 'status', status: 503, when: 'authenticated', times: 3 }],
    });
    const statuses: number[] = [];
    advance();
    for (let count = 0; count < 2; count += 1) statuses.push((await get(authors)).status);
    expect(statuses).toEqual([503, 200]);
  });
});
