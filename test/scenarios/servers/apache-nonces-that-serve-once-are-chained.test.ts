import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { echoOf } from '../../support/real-server.ts';

const setScene = useScenes();

test('one client after the other costs one upstream request each', async () => {
  const { ask, attempts, stop } = await setScene(startApache({ nonceLifetime: 0 }));
  for (let left = 30; left > 0; left -= 1) expect((await ask('/api/abstracts')).status).toBe(200);
  expect(await attempts()).toEqual({ challenged: 1, ok: 30 });
  expect((await stop()).map(({ status }) => status)).toEqual([401, ...Array.from({ length: 30 }, () => 200)]);
});

test('a crowd is served too', async () => {
  const { ask, attempts, stop } = await setScene(startApache({ nonceLifetime: 0 }));
  const targets = Array.from({ length: 30 }, (_, index) => `/api/abstracts?client=${index}`);
  for (const round of [1, 2]) {
    const seen = await Promise.all(targets.map((target) => ask(target)));
    expect([round, seen.map(({ body }) => body)]).toEqual([
      round,
      targets.map((target) => echoOf('GET', target)),
    ]);
  }
  const { ok, refused = 0, error = 0 } = await attempts();
  expect({ ok, refused, error }).toEqual({ ok: 60, refused: 0, error: 0 });
  expect((await stop()).filter(({ status }) => status === 200)).toHaveLength(60);
});
