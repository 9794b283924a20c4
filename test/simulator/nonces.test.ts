import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { answer } from '../support/digest-client.ts';
import { authors, connect, openSession, type Seen, type Session, user } from './session.ts';

let session: Session;
const open = async (behaviour: BehaviourChange = {}) => {
  session = await openSession(behaviour);
  return session;
};

const counts = () => session.simulator.counts('submissions');
const stale = (seen: Seen) => `${seen.status} ${seen.challenges[0]?.get('stale')}`;

describe('an expired nonce', () => {
  test('gets a new one with stale=true, after which all goes on', async () => {
    const { challenge, answered, advance } = await open({ nonceLifetimeMs: 1000 });
    const offered = await challenge();
    advance(999);
    expect((await answered(offered)).status).toBe(200);
    advance(1);
    const seen = await answered(offered);
    expect(stale(seen)).toBe('401 true');
    expect((await answered(seen.challenges[0] ?? new Map())).status).toBe(200);
    expect(counts()).toMatchObject({ accepted: 2, challenges: 2, stale: 1, distinctNonces: 2 });
    expect(counts().refused['nonce-expired']).toBe(1);
  });

  test.each([
    ['after-digest', '401 true', '401 false', '401 false'],
    ['always', '401 true', '401 true', '401 true'],
    ['never', '401 false', '401 false', '401 false'],
  ] as const)(
    'staleFlag %s: right digest %s, wrong digest %s, unknown nonce %s',
    async (staleFlag, ...expected) => {
      const { challenge, answered, advance, simulator } = await open({ staleFlag, nonceLifetimeMs: 10 });
      const offered = await challenge();
      advance(10);
      const right = await answered(offered);
      const wrong = await answered(offered, { password: 'guess' });
      simulator.reset('submissions');
      const unknown = await answered(offered);
      expect([right, wrong, unknown].map(stale)).toEqual(expected);
    },
  );
});

describe('a nonce is unknown', () => {
  test('after a restart, although its digest is right', async () => {
    const { challenge, answered, simulator } = await open();
    const offered = await challenge();
    expect((await answered(offered)).status).toBe(200);
    simulator.reset('submissions');
    expect(stale(await answered(offered))).toBe('401 false');
    expect(counts()).toMatchObject({ requests: 1, accepted: 0, challenges: 1 });
    expect(counts().refused['nonce-unknown']).toBe(1);
  });

  test('when its expiry was put off, or it is spelled otherwise', async () => {
    const { challenge, answered } = await open();
    const offered = await challenge();
    const [issued, expires, hash] = Buffer.from(offered.get('nonce') ?? '', 'base64')
      .toString()
      .split(':');
    const forged = Buffer.from(`${issued}:${Number(expires) + 1}:${hash}`).toString('base64');
    for (const nonce of [forged, `${offered.get('nonce')} `, `${offered.get('nonce')}=`]) {
      expect(stale(await answered(new Map([...offered, ['nonce', nonce]])))).toBe('401 false');
    }
    expect(counts().refused['nonce-unknown']).toBe(3);
  });

  test('from another address, when it is bound to one', async () => {
    const { challenge, answered, simulator } = await open({ bindNonceToAddress: true });
    const offered = await challenge();
    expect((await answered(offered)).status).toBe(200);
    const other = connect(simulator, { localAddress: '127.0.0.2' });
    const authorization = answer(offered, { method: 'GET', target: authors, ...user });
    const seen = await other.request({ path: authors, method: 'GET', headers: { authorization } });
    await seen.body.dump();
    await other.destroy();
    expect(seen.statusCode).toBe(401);
    expect(counts().refused['nonce-unknown']).toBe(1);
  });
});

describe('a nonce is used up', () => {
  test.each([
    [1, { oneTimeNonces: true }],
    [3, { maxNonceUses: 3 }],
  ])('after %i uses', async (uses, behaviour) => {
    const { challenge, answered } = await open(behaviour);
    const offered = await challenge();
    for (let use = 0; use < uses; use += 1) expect((await answered(offered)).status).toBe(200);
    expect(stale(await answered(offered))).toBe('401 true');
    expect(counts().refused['nonce-used']).toBe(1);
    expect(counts().nonces).toEqual([{ uses: uses + 1, highestNc: 0, ncs: [] }]);
  });

  test('not by a wrong digest', async () => {
    const { challenge, answered } = await open({ oneTimeNonces: true });
    const offered = await challenge();
    expect((await answered(offered, { password: 'guess' })).status).toBe(401);
    expect((await answered(offered)).status).toBe(200);
  });
});

describe('nc', () => {
  const statuses = async (behaviour: BehaviourChange, ...ncs: number[]) => {
    const { challenge, answered } = await open({ qop: 'auth', ...behaviour });
    const offered = await challenge();
    const seen: number[] = [];
    for (const nc of ncs) seen.push((await answered(offered, { nc })).status);
    return seen;
  };

  test('unchecked: any, but violations are counted', async () => {
    expect(await statuses({}, 1, 3, 2, 2, 5000)).toEqual([200, 200, 200, 200, 200]);
    expect(counts()).toMatchObject({
      ncViolations: 2,
      distinctNonces: 1,
      nonces: [{ uses: 5, highestNc: 5000, ncs: [1, 3, 2, 2, 5000] }],
    });
  });

  test('window: each value once, at most 50 ahead', async () => {
    expect(await statuses({ nc: 'window' }, 1, 3, 2, 2, 53, 54, 54, 55)).toEqual([
      200, 200, 200, 401, 200, 200, 401, 200,
    ]);
    expect(counts().refused.nc).toBe(2);
  });

  test('window: not further ahead, and nothing long past', async () => {
    expect(await statuses({ nc: 'window' }, 51, 50, 0)).toEqual([401, 200, 401]);
    const { challenge, answered } = await open({ qop: 'auth', nc: 'window' });
    const offered = await challenge();
    for (let nc = 2; nc < 55; nc += 1) expect((await answered(offered, { nc })).status).toBe(200);
    expect((await answered(offered, { nc: 1 })).status).toBe(401);
  });

  test('rising: strictly, gaps allowed', async () => {
    expect(await statuses({ nc: 'rising' }, 1, 2, 2, 1, 9, 8, 10)).toEqual([
      200, 200, 401, 401, 200, 401, 200,
    ]);
    expect(counts().refused.nc).toBe(3);
  });

  test('rising: a refused nc kills the nonce where the setting says so', async () => {
    expect(await statuses({ nc: 'rising', refusedNcKillsNonce: true }, 1, 1, 2)).toEqual([200, 401, 401]);
    expect(counts().refused).toMatchObject({ nc: 1, 'nonce-unknown': 1 });
  });
});

describe('a cookie that must come back', () => {
  test('goes with its nonce, else a plain 401', async () => {
    const { ask, answered } = await open({ requireCookie: true, nonceLifetimeMs: 1000 });
    const first = await ask(authors);
    const second = await ask(authors);
    const cookieOf = (seen: Seen) => String(seen.headers['set-cookie']).split(';')[0] ?? '';
    const [offered = new Map()] = first.challenges;
    const withCookie = (cookie: string) => answered(offered, {}, { headers: { cookie } });
    expect((await withCookie(`other=1; ${cookieOf(first)}`)).status).toBe(200);
    expect(stale(await withCookie(cookieOf(second)))).toBe('401 false');
    expect(stale(await answered(offered))).toBe('401 false');
    expect(counts().refused.cookie).toBe(2);
  });

  test('comes anew with each nextnonce', async () => {
    const { ask, answered } = await open({ requireCookie: true, nextnonce: 'always' });
    const first = await ask(authors);
    const [offered = new Map()] = first.challenges;
    const cookie = String(first.headers['set-cookie']).split(';')[0] ?? '';
    const seen = await answered(offered, {}, { headers: { cookie } });
    expect(String(seen.headers['set-cookie']).split(';')[0]).not.toBe(cookie);
    expect(seen.headers['set-cookie']).toBeDefined();
  });
});

describe('a lock-out', () => {
  test('refuses the address after so many wrong digests, for a while', async () => {
    const lockout = { failures: 2, durationMs: 1000, answer: '403' } as const;
    const { challenge, answered, ask, advance } = await open({ lockout });
    const offered = await challenge();
    await answered(offered, { password: 'guess' });
    expect((await answered(offered)).status).toBe(200);
    await answered(offered, { password: 'guess' });
    await answered(offered, { username: 'nobody' });
    expect((await answered(offered)).status).toBe(403);
    expect((await ask(authors)).status).toBe(403);
    advance(1000);
    expect((await answered(offered)).status).toBe(200);
    expect(counts()).toMatchObject({ lockedOut: 2, accepted: 2 });
  });

  test('or drops its connections', async () => {
    const { challenge, answered, ask } = await open({
      lockout: { failures: 1, durationMs: 1000, answer: 'drop' },
    });
    await answered(await challenge(), { password: 'guess' });
    await expect(ask(authors)).rejects.toMatchObject({ code: 'ECONNRESET' });
  });

  test('does not count expired and unknown nonces', async () => {
    const { challenge, answered, advance, simulator } = await open({
      lockout: { failures: 1, durationMs: 1000 },
      nonceLifetimeMs: 10,
    });
    const offered = await challenge();
    advance(10);
    await answered(offered);
    simulator.reset('submissions');
    await answered(offered);
    expect((await answered(await challenge())).status).toBe(200);
  });
});

test('sharedNonceMs: all who ask within the interval get the same nonce, whose counts rise for all together', async () => {
  const { challenge, answered, advance } = await open({
    qop: 'auth',
    nc: 'rising',
    sharedNonceMs: 1_000,
    staleFlag: 'never',
  });
  const [one, two] = [await challenge(), await challenge()];
  expect(one.get('nonce')).toBe(two.get('nonce'));
  expect((await answered(one)).status).toBe(200);
  const refused = await answered(two);
  expect([stale(refused), refused.challenges[0]?.get('nonce')]).toEqual(['401 false', one.get('nonce')]);
  advance(1_000);
  const next = await challenge();
  expect(next.get('nonce')).not.toBe(one.get('nonce'));
  expect((await answered(next)).status).toBe(200);
});

test('refusedTargets: a right answer is refused for the target alone', async () => {
  const { challenge, answered } = await open({ refusedTargets: '%27DEMO' });
  expect((await answered(await challenge())).status).toBe(401);
  expect(counts().refused['wrong-response']).toBe(1);
});
