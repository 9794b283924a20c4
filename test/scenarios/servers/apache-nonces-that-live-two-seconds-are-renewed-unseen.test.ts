import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import type { Logged } from '../../support/real-server.ts';

const setScene = useScenes();
/** Apache measures a nonce's age to the microsecond; the rest is for its clock and ours. */
const LIFETIME_MS = 2_000;
const EXPIRED_MS = LIFETIME_MS + 50;

test('steady traffic outlives the first nonce on nextnonce alone', async () => {
  const { ask, attempts, stop } = await setScene(startApache({ nonceLifetime: 2 }));
  const end = performance.now() + EXPIRED_MS;
  let asked = 0;
  for (; performance.now() < end; asked += 1) {
    expect((await ask('/api/abstracts')).status).toBe(200);
    await delay(50);
  }
  expect((await ask('/api/abstracts')).status).toBe(200);
  expect(await attempts()).toEqual({ challenged: 1, ok: asked + 1 });
  expect(noncesIn(await stop()).size).toBe(asked + 1);
});

test('after a pause longer than that, a crowd is served with fresh nonces', async () => {
  const { ask, attempts, gateway, stop } = await setScene(startApache({ nonceLifetime: 2 }));
  expect((await ask('/api/abstracts')).status).toBe(200);
  await delay(EXPIRED_MS);
  const seen = await Promise.all(Array.from({ length: 20 }, () => ask('/api/abstracts')));
  expect(seen.map(({ status }) => status)).toEqual(seen.map(() => 200));
  const counted = await attempts();
  const log = await stop();
  const refused = log.filter(({ status, authorization }) => status === 401 && authorization !== undefined);
  expect(refused.length).toBeGreaterThan(0);
  expect(counted).toEqual({ challenged: 1, ok: 21, stale: refused.length });
  expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'stale' })).toBe(refused.length);
  // A retry goes out at once and alone, so nothing is refused twice.
  expect(refused.length).toBeLessThanOrEqual(20);
});

function noncesIn(log: readonly Logged[]): ReadonlySet<string> {
  return new Set(log.flatMap(({ authorization }) => / nonce="([^"]*)"/.exec(authorization ?? '')?.[1] ?? []));
}
