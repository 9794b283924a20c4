import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { authors, type RunningScene, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

/** Lives of nonces, in milliseconds: the first one that the machine keeps up with is used. */
const LIVES_MS = [600, 2_400, 9_600];
/** Long enough for one renewal on any machine. */
const LIFE_MS = 2_400;
/** Short: no renewal has to be in time. */
const SHORT_LIFE_MS = 600;
/** Pause between requests, in milliseconds: the gateway needs the processor, too. */
const PAUSE_MS = 15;

/** Asks until so much time is over; resolves to the statuses seen. */
async function askFor(ms: number, get: RunningScene['get']): Promise<Set<number>> {
  const statuses = new Set<number>();
  const end = Date.now() + ms;
  while (Date.now() < end) {
    const responses = await Promise.all([get(authors), get(authors), get(authors)]);
    for (const response of responses) {
      statuses.add(response.status);
      await response.text();
    }
    await delay(PAUSE_MS);
  }
  return statuses;
}

/** Asks until the gateway knows how long nonces live. */
async function learnLife({ gateway, get }: RunningScene, lifeMs: number): Promise<void> {
  // Without the pauses of `until`, in which a nonce would grow old unseen.
  do await askFor(lifeMs / 10, get);
  while ((await gateway.metric('digest_gateway_nonce_lifetime_seconds')) <= (0.8 * lifeMs) / 1000);
}

function staleAttempts({ gateway }: RunningScene): Promise<number> {
  return gateway.metric('digest_gateway_upstream_attempts_total', { result: 'stale' });
}

/** Whether four lives in a row end without a 401: a machine that stands still for a part of a life lets it end. */
async function isRenewedInTime(pair: RunningScene, lifeMs: number): Promise<boolean> {
  await learnLife(pair, lifeMs);
  expect(await staleAttempts(pair)).toBeGreaterThan(0);
  for (let tries = 0; tries < 3; tries += 1) {
    const before = await staleAttempts(pair);
    const statuses = await askFor(4 * lifeMs, pair.get);
    if ((await staleAttempts(pair)) !== before) continue;
    expect(statuses).toEqual(new Set([200]));
    return true;
  }
  return false;
}

describe.each(['none', 'auth'] as const)('qop %s', (qop) => {
  test('renews a nonce before it expires once its lifetime is learned', async () => {
    for (const lifeMs of LIVES_MS) {
      const pair = await startScene({ behaviour: { qop, nonceLifetimeMs: lifeMs } });
      if (!(await isRenewedInTime(pair, lifeMs))) continue;
      const { gateway, get } = pair;
      expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'ahead' })).toBeGreaterThan(3);
      // A nonce that nobody uses grows old.
      await until(async () => {
        await (await get(authors)).text();
        return (await gateway.metric('digest_gateway_nonce_age_seconds')) < lifeMs / 1000;
      });
      return;
    }
    throw new Error('with no life did four in a row end without a 401');
  }, 600_000);
});

test('does not renew a nonce that nobody uses', async () => {
  const pair = await startScene({ behaviour: { nonceLifetimeMs: SHORT_LIFE_MS } });
  await learnLife(pair, SHORT_LIFE_MS);
  const { requests } = pair.simulator.counts('submissions');
  await delay(4 * SHORT_LIFE_MS);
  // The nonce that was in use is renewed, at most twice if the machine is slow; its successor never is.
  expect(pair.simulator.counts('submissions').requests - requests).toBeLessThan(3);
});

test('renews nothing with renewAhead: false', async () => {
  const pair = await startScene({
    behaviour: { nonceLifetimeMs: SHORT_LIFE_MS },
    settings: { digest: { renewAhead: false } },
  });
  await learnLife(pair, SHORT_LIFE_MS);
  const before = await staleAttempts(pair);
  await until(async () => {
    await askFor(SHORT_LIFE_MS / 10, pair.get);
    return (await staleAttempts(pair)) > before;
  });
  expect(await pair.gateway.metric('digest_gateway_challenges_total', { reason: 'ahead' })).toBe(0);
});

test('stops after a renewal and its confirmation if the credential is refused', async () => {
  const pair = await startScene({ behaviour: { qop: 'auth', nonceLifetimeMs: LIFE_MS } });
  const { simulator, gateway, get } = pair;
  await learnLife(pair, LIFE_MS);
  // One that nobody used would not be renewed.
  await (await get(authors)).text();
  simulator.set('submissions', {
    accounts: [{ username: 'demo-user', password: 'changed', sites: ['demo'] }],
  });
  const refusals = () => gateway.metric('digest_gateway_upstream_attempts_total', { result: 'refused' });
  await until(async () => (await refusals()) === 2);
  await delay(LIFE_MS);
  expect(simulator.counts('submissions').refused['wrong-response']).toBe(2);
});
