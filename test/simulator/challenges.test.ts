import { describe, expect, test } from '@jest/globals';
import { algorithmNames } from '../../src/simulator/settings.ts';
import { answer, readChallenges, serverProof } from '../support/digest-client.ts';
import { authors, openSession, type Seen, user } from './session.ts';

const lines = (seen: Seen) => [seen.headers['www-authenticate'] ?? []].flat();

describe('without Authorization', () => {
  test('the answer is the 401 of the specification', async () => {
    const { simulator, ask } = await openSession();
    const seen = await ask(authors);
    expect(seen.status).toBe(401);
    expect(seen.headers['www-authenticate']).toMatch(
      /^Digest realm="ExampleApiService", nonce="[A-Za-z0-9+/]+=*", stale="false"$/,
    );
    expect(seen.headers).toMatchObject({
      'content-type': 'text/plain;charset=UTF-8',
      'content-length': '33',
    });
    expect(seen.headers).not.toHaveProperty('set-cookie');
    expect(seen.body).toHaveLength(33);
    expect(simulator.counts('submissions')).toMatchObject({
      requests: 1,
      unauthenticated: 1,
      challenges: 1,
      stale: 0,
    });
  });

  test('every nonce is another one and carries when it was issued and expires', async () => {
    const { ask } = await openSession({ nonceLifetimeMs: 7000 });
    const seen = await Promise.all(Array.from({ length: 20 }, () => ask(authors)));
    const nonces = seen.map(({ challenges }) => challenges[0]?.get('nonce') ?? '');
    expect(new Set(nonces).size).toBe(20);
    const [issued, expires, hash] = Buffer.from(nonces[0] ?? '', 'base64')
      .toString()
      .split(':');
    expect(Number(expires) - Number(issued)).toBe(7000);
    expect(Math.abs(Number(issued) - Date.now())).toBeLessThan(60_000);
    expect(hash).toMatch(/^[\da-f]{48}$/);
  });

  test('HEAD has the same head and no body', async () => {
    const { ask } = await openSession();
    const seen = await ask(authors, { method: 'HEAD' });
    expect(seen.status).toBe(401);
    expect(seen.headers['content-length']).toBe('33');
    expect(seen.body).toHaveLength(0);
  });
});

describe('a challenge offers what the settings say', () => {
  test('qop, algorithm, opaque, userhash, charset and realm', async () => {
    const { ask } = await openSession({
      qop: 'both',
      algorithms: ['SHA-512-256-sess'],
      opaque: true,
      userhash: true,
      charset: true,
      realm: 'A "realm" \\ Köln',
    });
    const seen = await ask(authors);
    expect(Buffer.from(lines(seen)[0] ?? '', 'latin1').toString()).toMatch(
      /^Digest realm="A \\"realm\\" \\\\ Köln", nonce="[^"]+", stale="false", qop="auth,auth-int", algorithm=SHA-512-256-sess, opaque="[\da-f]{32}", userhash=true, charset=UTF-8$/,
    );
  });

  test('MD5 is named as soon as there is a qop', async () => {
    const { challenge } = await openSession({ qop: 'auth' });
    expect((await challenge()).get('algorithm')).toBe('MD5');
  });

  test('several challenges come in lines of their own', async () => {
    const { ask } = await openSession({ algorithms: ['SHA-256', 'MD5'], qop: 'auth' });
    const seen = await ask(authors);
    expect(lines(seen)).toHaveLength(2);
    expect(seen.challenges.map((each) => each.get('algorithm'))).toEqual(['SHA-256', 'MD5']);
  });

  test('or joined in one', async () => {
    const { ask } = await openSession({ algorithms: ['SHA-256', 'MD5'], qop: 'auth', challenges: 'joined' });
    const seen = await ask(authors);
    expect(lines(seen)).toHaveLength(1);
    expect(seen.challenges.map((each) => each.get('algorithm'))).toEqual(['SHA-256', 'MD5']);
  });
});

describe('a right answer is accepted', () => {
  test.each(algorithmNames)('%s with auth and auth-int, plain and hashed user', async (algorithm) => {
    const { challenge, answered } = await openSession({
      algorithms: [algorithm],
      qop: 'both',
      userhash: true,
    });
    const offered = await challenge();
    for (const qop of ['auth', 'auth-int']) {
      for (const userhash of [false, true])
        expect((await answered(offered, { qop, userhash })).status).toBe(200);
    }
    expect((await answered(offered, { password: 'other' })).status).toBe(401);
  });

  test('auth-int covers the body', async () => {
    const { challenge, answered } = await openSession({ qop: 'auth-int' });
    const offered = await challenge('/echo');
    const ask = { method: 'POST', body: 'a body' };
    expect((await answered(offered, { target: '/echo' }, ask)).status).toBe(200);
    expect((await answered(offered, { target: '/echo', body: 'another' }, ask)).status).toBe(401);
  });

  test('one of several challenges may be answered, another algorithm not', async () => {
    const { ask, simulator } = await openSession({ algorithms: ['SHA-256', 'MD5'], qop: 'auth' });
    const { challenges } = await ask(authors);
    const parts = { method: 'GET', target: authors, ...user };
    for (const each of challenges) {
      expect((await ask(authors, { headers: { authorization: answer(each, parts) } })).status).toBe(200);
    }
    const unoffered = new Map([...(challenges[0] ?? []), ['algorithm', 'SHA-512-256']]);
    expect((await ask(authors, { headers: { authorization: answer(unoffered, parts) } })).status).toBe(401);
    expect(simulator.counts('submissions').refused.algorithm).toBe(1);
  });

  test('a user name beyond ASCII, by username*', async () => {
    const account = { username: 'Jäsøn Doe', password: 'pässwörd', sites: ['demo'] };
    const { challenge, answered } = await openSession({ accounts: [account], qop: 'auth', charset: true });
    const change = { username: undefined, 'username*': "UTF-8''J%C3%A4s%C3%B8n%20Doe" };
    const seen = await answered(await challenge(), { ...account, change });
    expect(seen.status).toBe(200);
  });
});

describe('a wrong answer is refused, by reason', () => {
  test.each([
    ['wrong-response', { password: 'guess' }],
    ['unknown-user', { username: 'nobody' }],
    ['uri', { change: { uri: `"${authors.replaceAll('%27', "'")}"` } }],
    ['realm', { change: { realm: '"Other"' } }],
    ['qop', { qop: 'auth' }],
    ['nonce-unknown', { change: { nonce: '"bm9uY2U="' } }],
    ['malformed', { change: { response: undefined } }],
  ] as const)('%s', async (reason, parts) => {
    const { challenge, answered, simulator } = await openSession();
    const offered = await challenge();
    // An unknown nonce is looked at only after a right digest, so the digest has to fit it.
    const used = reason === 'nonce-unknown' ? new Map([...offered, ['nonce', 'bm9uY2U=']]) : offered;
    const seen = await answered(used, parts);
    expect(seen.status).toBe(401);
    expect(seen.challenges[0]?.get('stale')).toBe('false');
    expect(simulator.counts('submissions').refused[reason]).toBe(1);
    expect(simulator.counts('submissions')).toMatchObject({ accepted: 0, challenges: 2 });
  });

  test('another scheme', async () => {
    const { ask, simulator } = await openSession();
    expect((await ask(authors, { headers: { authorization: 'Basic YTpi' } })).status).toBe(401);
    expect(simulator.counts('submissions').refused.scheme).toBe(1);
  });

  test('a wrong uri with 400 where the setting says so', async () => {
    const { challenge, answered } = await openSession({ uriMismatchStatus: 400 });
    const seen = await answered(await challenge(), { change: { uri: '"/other"' } });
    expect(seen.status).toBe(400);
    expect(seen.challenges).toEqual([]);
  });

  test('a hashed user name where none was offered', async () => {
    const { challenge, answered, simulator } = await openSession();
    expect((await answered(await challenge(), { userhash: true })).status).toBe(401);
    expect(simulator.counts('submissions').refused['unknown-user']).toBe(1);
  });

  test('another opaque, where it must match', async () => {
    const { challenge, answered, simulator } = await openSession({
      opaque: true,
      requireMatchingOpaque: true,
    });
    const offered = await challenge();
    expect((await answered(offered)).status).toBe(200);
    expect((await answered(offered, { change: { opaque: '"other"' } })).status).toBe(401);
    expect((await answered(offered, { change: { opaque: undefined } })).status).toBe(401);
    simulator.set('submissions', { opaque: false });
    expect((await answered(offered)).status).toBe(401);
    expect(simulator.counts('submissions').refused.opaque).toBe(3);
  });
});

describe('Authentication-Info', () => {
  const info = (seen: Seen) => readChallenges([`Digest ${seen.headers['authentication-info']}`])[0];

  test('is not sent by default', async () => {
    const { challenge, answered } = await openSession({ qop: 'auth' });
    expect((await answered(await challenge())).headers).not.toHaveProperty('authentication-info');
  });

  test('nextnonce is good for the next request', async () => {
    const { challenge, answered } = await openSession({
      qop: 'auth',
      nextnonce: 'always',
      oneTimeNonces: true,
    });
    const first = await answered(await challenge());
    const next = info(first)?.get('nextnonce') ?? '';
    const chained = await answered(
      new Map([
        ['realm', 'ExampleApiService'],
        ['nonce', next],
        ['qop', 'auth'],
      ]),
      {
        change: { algorithm: undefined },
      },
    );
    expect(chained.status).toBe(200);
    expect(info(chained)?.get('nextnonce')).not.toBe(next);
  });

  test.each(['right', 'wrong'] as const)('rspauth is %s', async (rspauth) => {
    const { challenge, answered } = await openSession({ qop: 'auth', rspauth });
    const offered = await challenge();
    const told = info(await answered(offered, { nc: 3, cnonce: 'abc' }));
    const right = serverProof(offered, { method: '', target: authors, ...user, nc: 3, cnonce: 'abc' });
    expect(told?.get('rspauth') === right).toBe(rspauth === 'right');
    expect(told?.get('rspauth')).toMatch(/^[\da-f]{32}$/);
    expect(Object.fromEntries(told ?? [])).toMatchObject({ qop: 'auth', nc: '00000003', cnonce: 'abc' });
  });

  test('rspauth without qop, and over the body with auth-int', async () => {
    const { challenge, answered, simulator } = await openSession({ rspauth: 'right' });
    const old = await challenge();
    const plain = await answered(old);
    expect(info(plain)?.get('rspauth')).toBe(serverProof(old, { method: '', target: authors, ...user }));

    simulator.set('submissions', { qop: 'auth-int' });
    const offered = await challenge();
    const whole = await answered(offered);
    expect(info(whole)?.get('rspauth')).toBe(
      serverProof(offered, { method: '', target: authors, ...user, body: whole.body.toString() }),
    );
  });
});
