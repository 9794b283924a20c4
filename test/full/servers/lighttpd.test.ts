import { describe, expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { answer, readChallenges } from '../../support/digest-client.ts';
import { account, echoOf, startLighttpd } from '../../support/real-server.ts';
import { startServerScene } from '../../support/server-scene.ts';

describe('the strongest allowed algorithm', () => {
  test.each([
    ['MD5', ['MD5'], undefined],
    ['SHA-256', ['SHA-256'], undefined],
    ['SHA-256', ['MD5', 'SHA-256'], undefined],
    ['SHA-256', ['SHA-256', 'MD5'], undefined],
    ['MD5', ['SHA-256', 'MD5'], ['MD5']],
  ] as const)('is %s of the offered %j, allowed %j', async (expected, offered, allowed) => {
    const { ask, attempts, stop } = await startServerScene(
      startLighttpd({ algorithms: offered }),
      allowed && { settings: { digest: { algorithms: allowed } } },
    );
    const targets = Array.from({ length: 20 }, (_, index) => `/api/abstracts?client=${index}`);
    const seen = await Promise.all(targets.map((target) => ask(target)));
    expect(seen.map(({ body }) => body)).toEqual(targets.map((target) => echoOf('GET', target)));
    const body = 'ids=1&ids=2';
    expect((await ask('/api/batch', { method: 'POST', body })).body).toBe(echoOf('POST', '/api/batch', body));
    expect((await ask('/api/batch', { method: 'HEAD' })).status).toBe(200);
    expect(await attempts()).toEqual({ challenged: 1, ok: 22 });
    const answers = (await stop()).flatMap(({ authorization }) => authorization ?? []);
    expect(answers).toHaveLength(22);
    for (const answer of answers) expect(answer).toContain(`, algorithm=${expected},`);
  });

  test('does not exist: the client gets 502 and no Authorization is sent', async () => {
    const { ask, attempts, stop } = await startServerScene(startLighttpd({ algorithms: ['MD5'] }), {
      settings: { digest: { algorithms: ['SHA-256'] } },
    });
    const seen = await ask('/api/abstracts');
    expect([seen.status, JSON.parse(seen.body)]).toMatchObject([502, { code: 'upstream-no-digest' }]);
    expect(await attempts()).toEqual({ challenged: 1 });
    expect((await stop()).map(({ authorization }) => authorization)).toEqual([undefined]);
  });
});

describe('the uri parameter', () => {
  const encoded = '/api/submissionids?ids=%27DEMO-1%27&site_name=demo';
  const bare = "/api/submissionids?ids='DEMO-1'&site_name=demo";

  test('is the target byte for byte', async () => {
    const { ask, attempts, stop } = await startServerScene(startLighttpd({ algorithms: ['SHA-256'] }));
    const targets = [
      encoded,
      bare,
      '/api/%7euser/../x//y?a=%2f&b=%2F',
      '/api/?',
      '/api/a;b=c?q=!$()*,[]|^`{}&e=%C3%A9%22',
    ];
    for (const target of targets) expect([target, (await ask(target)).status]).toEqual([target, 200]);
    expect(await attempts()).toEqual({ challenged: 1, ok: targets.length });
    const signed = (await stop()).flatMap(({ authorization }) => authorization ?? []);
    expect(signed).toHaveLength(targets.length);
  });

  test('gets 400 from lighttpd if it differs from the target', async () => {
    const server = await startLighttpd({ algorithms: ['SHA-256'] });
    const pool = new Pool(server.deployment.origin, { connect: { ca: server.deployment.ca ?? '' } });
    try {
      const asked = await pool.request({ path: encoded, method: 'GET' });
      await asked.body.dump();
      const [challenge] = readChallenges([asked.headers['www-authenticate'] ?? []].flat());
      if (challenge === undefined) throw new Error('There was no challenge.');
      for (const [path, status] of [
        [encoded, 200],
        [bare, 400],
      ] as const) {
        const authorization = answer(challenge, { method: 'GET', target: encoded, ...account });
        const answered = await pool.request({ path, method: 'GET', headers: { authorization } });
        await answered.body.dump();
        expect(answered.statusCode).toBe(status);
      }
    } finally {
      await pool.close();
      await server.close();
    }
  });
});

describe('userhash=true', () => {
  test.each(['MD5', 'SHA-256'] as const)('is answered with a hashed user name, %s', async (algorithm) => {
    const { ask, attempts, stop } = await startServerScene(
      startLighttpd({ algorithms: [algorithm], userhash: true }),
    );
    expect((await ask('/api/1')).status).toBe(200);
    expect((await ask('/api/2')).status).toBe(200);
    expect(await attempts()).toEqual({ challenged: 1, ok: 2 });
    const answers = (await stop()).flatMap(({ authorization }) => authorization ?? []);
    expect(answers).toHaveLength(2);
    for (const answer of answers) {
      expect(answer).toContain(', userhash=true,');
      expect(answer).not.toContain(account.username);
    }
  });
});
