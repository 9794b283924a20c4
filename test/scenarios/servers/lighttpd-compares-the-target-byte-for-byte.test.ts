import { expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { answer, readChallenges } from '../../support/digest-client.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { startLighttpd } from '../../support/lighttpd.ts';
import { account } from '../../support/real-server.ts';

const setScene = useScenes();
const encoded = '/api/submissionids?ids=%27DEMO-1%27&site_name=demo';
const bare = "/api/submissionids?ids='DEMO-1'&site_name=demo";

test('and finds in each answer what the client wrote', async () => {
  const { ask, attempts, stop } = await setScene(startLighttpd({ algorithms: ['SHA-256'] }));
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

test('or else says 400, so that the test above can fail', async () => {
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
