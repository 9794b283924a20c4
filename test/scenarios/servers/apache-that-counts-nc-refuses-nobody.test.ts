import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { expectCrowdsServed, useScenes } from '../../support/gateway-scene.ts';

const setScene = useScenes();

test('nc rises by one with each of two hundred requests', async () => {
  const { ask, attempts, stop } = await setScene(startApache({ checkCount: true }));
  for (let left = 200; left > 0; left -= 1) expect((await ask('/api/abstracts')).status).toBe(200);
  expect(await attempts()).toEqual({ challenged: 1, ok: 200 });
  const counts = (await stop()).flatMap(
    ({ authorization }) => /nc=(\w{8})/.exec(authorization ?? '')?.[1] ?? [],
  );
  expect(counts.map((count) => Number.parseInt(count, 16))).toEqual(counts.map((_, index) => index + 1));
});

test('a crowd whose requests arrive in any order is served, and no credential is called refused', async () => {
  const scene = await setScene(startApache({ checkCount: true }));
  await expectCrowdsServed(scene, 50);
});
