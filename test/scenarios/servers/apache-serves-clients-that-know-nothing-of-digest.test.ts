import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { echoOf } from '../../support/real-server.ts';

const setScene = useScenes();

test('each request reaches Apache as it was sent, all of them on one challenge', async () => {
  const { ask, attempts, stop } = await setScene(startApache());
  const targets = [
    '/api/submissionids?ids=%27DEMO-1%27&site_name=demo',
    "/api/submissionids?ids='DEMO-1'&site_name=demo",
    '/api/a%20b;c=1?x=%2F%3F&y="quoted"&z=\\',
    '/api/?',
  ];
  for (const target of targets) {
    const seen = await ask(target);
    expect([seen.status, seen.body]).toEqual([200, echoOf('GET', target)]);
  }
  expect(await attempts()).toEqual({ challenged: 1, ok: targets.length });
  expect((await stop()).map(({ status }) => status)).toEqual([401, ...targets.map(() => 200)]);
});

test('a body that comes before the challenge is sent again', async () => {
  const { ask, stop } = await setScene(startApache());
  const body = Buffer.alloc(200_000, 'ids=1&');
  const seen = await ask('/api/batch', { method: 'POST', body });
  expect([seen.status, seen.body]).toEqual([200, echoOf('POST', '/api/batch', body)]);
  const log = await stop();
  expect(log.map(({ status, method }) => [status, method])).toEqual([
    [401, 'POST'],
    [200, 'POST'],
  ]);
});

test('HEAD is answered, with no body', async () => {
  const { ask, stop } = await setScene(startApache());
  const seen = await ask('/api/abstracts?ids=%27A%27', { method: 'HEAD' });
  expect([seen.status, seen.headers['content-type'], seen.body]).toEqual([200, 'text/plain', '']);
  expect((await stop()).map(({ status, method }) => [status, method])).toEqual([
    [401, 'HEAD'],
    [200, 'HEAD'],
  ]);
});

test('fifty clients at once share one challenge, each nc used once', async () => {
  const { ask, attempts, stop } = await setScene(startApache());
  const targets = Array.from({ length: 50 }, (_, index) => `/api/abstracts?client=${index}`);
  const seen = await Promise.all(targets.map((target) => ask(target)));
  expect(seen.map(({ body }) => body)).toEqual(targets.map((target) => echoOf('GET', target)));
  expect(await attempts()).toEqual({ challenged: 1, ok: 50 });
  const counts = (await stop()).flatMap(
    ({ authorization }) => /nc=(\w{8})/.exec(authorization ?? '')?.[1] ?? [],
  );
  expect(new Set(counts).size).toBe(50);
});
