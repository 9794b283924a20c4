import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { expectCrowdsServed, useScenes } from '../../support/gateway-scene.ts';

const setScene = useScenes();

test('one client after the other costs one upstream request each', async () => {
  const { ask, attempts, stop } = await setScene(startApache({ nonceLifetime: 0 }));
  for (let left = 30; left > 0; left -= 1) expect((await ask('/api/abstracts')).status).toBe(200);
  expect(await attempts()).toEqual({ challenged: 1, ok: 30 });
  expect((await stop()).map(({ status }) => status)).toEqual([401, ...Array.from({ length: 30 }, () => 200)]);
});

test('a crowd is served too', async () => {
  const scene = await setScene(startApache({ nonceLifetime: 0 }));
  await expectCrowdsServed(scene, 30);
});
