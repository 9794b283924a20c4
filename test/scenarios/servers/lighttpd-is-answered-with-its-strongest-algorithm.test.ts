import { expect, test } from '@jest/globals';
import { useScenes } from '../../support/gateway-scene.ts';
import { startLighttpd } from '../../support/lighttpd.ts';
import { echoOf } from '../../support/real-server.ts';

const setScene = useScenes();

test.each([
  ['MD5', ['MD5'], undefined],
  ['SHA-256', ['SHA-256'], undefined],
  ['SHA-256', ['MD5', 'SHA-256'], undefined],
  ['SHA-256', ['SHA-256', 'MD5'], undefined],
  ['MD5', ['SHA-256', 'MD5'], ['MD5']],
] as const)('%s of the offered %j, allowed %j', async (expected, offered, allowed) => {
  const { ask, attempts, stop } = await setScene(
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

test('nothing that the deployment allows: it is told so, and no answer goes out', async () => {
  const { ask, attempts, stop } = await setScene(startLighttpd({ algorithms: ['MD5'] }), {
    settings: { digest: { algorithms: ['SHA-256'] } },
  });
  const seen = await ask('/api/abstracts');
  expect([seen.status, JSON.parse(seen.body)]).toMatchObject([502, { code: 'upstream-no-digest' }]);
  expect(await attempts()).toEqual({ challenged: 1 });
  expect((await stop()).map(({ authorization }) => authorization)).toEqual([undefined]);
});
