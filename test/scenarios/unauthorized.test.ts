import { describe, expect, test } from '@jest/globals';
import { readChallenges, serverProof } from '../support/digest-client.ts';
import { startGateway } from '../support/gateway.ts';
import { authors, problemOf, type RunningScene, startScene } from '../support/scene.ts';
import { startRawUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';

async function attempts({ gateway }: RunningScene): Promise<Record<string, number>> {
  const results = ['ok', 'challenged', 'stale', 'refused', 'error'];
  const counts = await Promise.all(
    results.map((result) => gateway.metric('digest_gateway_upstream_attempts_total', { result })),
  );
  return Object.fromEntries(results.map((result, index) => [result, counts[index] ?? 0]));
}

describe('repeats a request that gets 401 to a cached nonce, whatever stale says:', () => {
  test.each(['after-digest', 'never'] as const)('stale flag: %s', async (staleFlag) => {
    const pair = await startScene({ behaviour: { staleFlag } });
    expect((await pair.get(authors)).status).toBe(200);
    pair.simulator.reset('submissions'); // as after a restart: the old nonce is unknown
    expect((await pair.get(authors)).status).toBe(200);
    expect(await attempts(pair)).toEqual({ ok: 2, challenged: 1, stale: 1, refused: 0, error: 0 });
    expect(await pair.gateway.metric('digest_gateway_challenges_total', { reason: 'stale' })).toBe(1);
  });
});

test('repeats a request whose nonce has expired', async () => {
  // Longer than a busy machine takes to answer a challenge.
  const pair = await startScene({
    behaviour: { nonceLifetimeMs: 600 },
    settings: { digest: { renewAhead: false } },
  });
  const statuses = new Set<number>();
  await until(async () => {
    statuses.add((await pair.get(authors)).status);
    return ((await attempts(pair))['stale'] ?? 0) >= 3;
  });
  expect([...statuses]).toEqual([200]);
});

test('obtains a challenge for each request where nonces serve once', async () => {
  const pair = await startScene({ behaviour: { oneTimeNonces: true, staleFlag: 'never' } });
  for (let index = 0; index < 5; index += 1) expect((await pair.get(authors)).status).toBe(200);
  const answers = await Promise.all(Array.from({ length: 20 }, () => pair.get(authors)));
  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
  expect((await attempts(pair))['refused']).toBe(0);
});

test('uses nextnonce of one-time nonces without a second challenge', async () => {
  const pair = await startScene({
    behaviour: { qop: 'auth', oneTimeNonces: true, nextnonce: 'always', rspauth: 'right' },
  });
  for (let index = 0; index < 20; index += 1) expect((await pair.get(authors)).status).toBe(200);
  const { challenges, requests } = pair.simulator.counts('submissions');
  expect([challenges, requests]).toEqual([1, 21]);
});

test('serves 50 clients at once where one nc out of order ends a nonce', async () => {
  const pair = await startScene({
    behaviour: { qop: 'auth', nc: 'rising', refusedNcKillsNonce: true, staleFlag: 'never' },
  });
  for (let round = 0; round < 4; round += 1) {
    const answers = await Promise.all(Array.from({ length: 50 }, () => pair.get(authors)));
    expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
  }
  expect((await attempts(pair))['refused']).toBe(0);
});

test('takes a fresh nonce refused without stale for a refused credential once it is confirmed: no attempt for a minute', async () => {
  const pair = await startScene({ password: 'wrong' });
  const answers = await Promise.all(Array.from({ length: 50 }, () => pair.get(authors)));
  const problems = await Promise.all(answers.map(problemOf));
  expect(new Set(problems.map(({ status, code }) => `${status} ${code}`))).toEqual(
    new Set(['502 upstream-credential-refused']),
  );
  expect(problems[0]?.detail).not.toContain('wrong');
  const { requests, refused } = pair.simulator.counts('submissions');
  // Of the client's request, and of the gateway's own that confirms it.
  expect([requests, refused['wrong-response']]).toEqual([4, 2]);

  const readiness = await fetch(`${pair.gateway.control}/readyz`);
  expect([readiness.status, ((await readiness.json()) as { status: string }).status]).toEqual([503, 'down']);
  expect(pair.gateway.logged.filter(({ code }) => code === 'upstream-credential-refused')).toHaveLength(1);
});

test('gives up after two authenticated attempts if every nonce is called stale', async () => {
  const pair = await startScene({ behaviour: { faults: [{ kind: 'endless-401', stale: true }] } });
  expect((await problemOf(await pair.get(authors))).code).toBe('upstream-protocol');
  const { requests, unauthenticated } = pair.simulator.counts('submissions');
  expect([requests, unauthenticated]).toEqual([3, 1]);
});

describe('passes on a 401 without a usable Digest challenge:', () => {
  test.each(['basic', 'nothing'] as const)('offered: %s', async (offer) => {
    const pair = await startScene({ behaviour: { faults: [{ kind: 'no-digest', offer }] } });
    expect((await problemOf(await pair.get(authors))).code).toBe('upstream-no-digest');
    expect(pair.simulator.counts('submissions').requests).toBe(1);
  });

  test('offered: an algorithm that the deployment does not allow', async () => {
    const pair = await startScene({
      behaviour: { qop: 'auth' },
      settings: { digest: { algorithms: ['SHA-256'] } },
    });
    expect((await problemOf(await pair.get(authors))).code).toBe('upstream-no-digest');
  });
});

test('responds to the strongest allowed of several challenges', async () => {
  const pair = await startScene({
    behaviour: {
      qop: 'auth',
      algorithms: ['MD5', 'SHA-256', 'SHA-512-256-sess'],
      challenges: 'joined',
    },
  });
  expect((await pair.get(authors)).status).toBe(200);
});

test('returns the cookie of a challenge to the upstream, never to the client', async () => {
  const pair = await startScene({ behaviour: { qop: 'auth', requireCookie: true } });
  for (let index = 0; index < 3; index += 1) {
    const answer = await pair.get(authors);
    expect([answer.status, answer.headers.getSetCookie()]).toEqual([200, []]);
  }
  expect(pair.simulator.counts('submissions').challenges).toBe(1);
});

describe('checks the proof of the upstream:', () => {
  test.each(['auth', 'auth-int'] as const)('passes on a response with the right one, qop %s', async (qop) => {
    const pair = await startScene({ behaviour: { qop, rspauth: 'right' } });
    for (let index = 0; index < 3; index += 1) expect((await pair.get(authors)).status).toBe(200);
  });

  test('withholds a response with a wrong one, and drops its nextnonce', async () => {
    const pair = await startScene({ behaviour: { qop: 'auth', rspauth: 'wrong', nextnonce: 'always' } });
    const answer = await pair.get(authors);
    expect([answer.status, (await problemOf(answer)).code]).toEqual([502, 'upstream-proof-invalid']);
    expect(await (await pair.get(authors)).text()).not.toContain('Lindqvist');
  });

  test('withholds a response with a wrong one over the body (auth-int)', async () => {
    const pair = await startScene({ behaviour: { qop: 'auth-int', rspauth: 'wrong' } });
    const answer = await pair.get(authors);
    expect([answer.status, (await problemOf(answer)).code]).toEqual([502, 'upstream-proof-invalid']);
    expect(
      await pair.gateway.metric('digest_gateway_requests_total', { code: 'upstream-proof-invalid' }),
    ).toBe(1);
  });

  test('passes on a body whose start comes in one large piece with the head (auth-int)', async () => {
    const body = 'b'.repeat(2 ** 17);
    const challenge = 'Digest realm="r", nonce="n", qop="auth-int", algorithm=SHA-256';
    await using upstream = await startRawUpstream((head) => {
      const [signed] = readChallenges([/^authorization: (.*)$/im.exec(head)?.[1] ?? '']);
      if (signed === undefined)
        return `HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: ${challenge}\r\nContent-Length: 0\r\n\r\n`;
      const nc = Number.parseInt(signed.get('nc') ?? '', 16);
      const cnonce = signed.get('cnonce') ?? '';
      const parts = { method: '', target: '/', username: 'demo-user', password: 'demo-api-key', body };
      const proof = `rspauth="${serverProof(signed, { ...parts, nc, cnonce, qop: 'auth-int' })}"`;
      return `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\nAuthentication-Info: ${proof}\r\n\r\n${body}`;
    });
    await using gateway = await startGateway({
      upstream: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } },
    });
    const response = await fetch(gateway.origin);
    expect([response.status, (await response.text()) === body]).toEqual([200, true]);
  });
});

test('passes on what the upstream refuses after Digest', async () => {
  const pair = await startScene({ behaviour: { allowedAddresses: ['192.0.2.1'] } });
  const answer = await pair.get(authors);
  expect(answer.status).toBe(403);
  expect(pair.simulator.counts('submissions').refusedByAddress).toBe(1);
  const wrongSite = await startScene();
  const refused = await wrongSite.get(authors.replace('site_name=demo', 'site_name=other'));
  expect([refused.status, refused.headers.get('x-frame-options')]).toEqual([500, 'DENY']);
});
