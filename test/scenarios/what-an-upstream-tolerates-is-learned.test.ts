import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { authors, type Pair, startPair } from '../support/simulated-pair.ts';

const ATTEMPTS = 'digest_gateway_upstream_attempts_total';
const POLICY = 'digest_gateway_nonce_policy';

async function crowds({ get }: Pair, rounds: number): Promise<Set<number>> {
  const statuses = new Set<number>();
  for (let round = 0; round < rounds; round += 1) {
    const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
    for (const answer of answers) {
      statuses.add(answer.status);
      await answer.text();
    }
  }
  return statuses;
}

async function settled(behaviour: BehaviourChange, options: { relay?: boolean } = {}): Promise<Pair> {
  const pair = await startPair(behaviour, options);
  expect(await crowds(pair, 15)).toEqual(new Set([200]));
  return pair;
}

/** What a further 200 requests cost: upstream requests, and those that were refused a nonce. */
async function costOf(pair: Pair): Promise<{ requests: number; stale: number; violations: number }> {
  const { simulator, gateway } = pair;
  const seen = async () => {
    const { requests, ncViolations } = simulator.counts('submissions');
    return { requests, violations: ncViolations, stale: await gateway.metric(ATTEMPTS, { result: 'stale' }) };
  };
  const before = await seen();
  expect(await crowds(pair, 10)).toEqual(new Set([200]));
  const after = await seen();
  return {
    requests: after.requests - before.requests,
    stale: after.stale - before.stale,
    violations: after.violations - before.violations,
  };
}

describe('nonces are used', () => {
  test('one request at a time where nc has to rise', async () => {
    const rising = { nc: 'rising', refusedNcKillsNonce: true, staleFlag: 'never' } as const;
    const pair = await settled({ qop: 'auth', ...rising }, { relay: true });
    expect(await pair.gateway.metric(POLICY, { policy: 'exclusive' })).toBe(1);
    expect(await costOf(pair)).toEqual({ requests: 200, stale: 0, violations: 0 });
  });

  test('once where they serve once', async () => {
    const pair = await settled({ oneTimeNonces: true, staleFlag: 'never' });
    expect(await pair.gateway.metric(POLICY, { policy: 'single-use' })).toBe(1);
    expect(await costOf(pair)).toEqual({ requests: 400, stale: 0, violations: 0 });
    const reason = { reason: 'single_use' };
    expect(await pair.gateway.metric('digest_gateway_challenges_total', reason)).toBeGreaterThanOrEqual(200);
  });

  test('in chains, one request at a time, where the upstream names the next one', async () => {
    const pair = await settled({ qop: 'auth', oneTimeNonces: true, nextnonce: 'always', staleFlag: 'never' });
    expect(await pair.gateway.metric(POLICY, { policy: 'exclusive' })).toBe(1);
    expect(await costOf(pair)).toEqual({ requests: 200, stale: 0, violations: 0 });
  });

  test('by everyone at once where nothing speaks against it, and each step is logged once', async () => {
    const pair = await settled({ qop: 'auth', nc: 'window' });
    expect(await pair.gateway.metric(POLICY, { policy: 'shared' })).toBe(1);
    expect(await costOf(pair)).toEqual({ requests: 200, stale: 0, violations: expect.any(Number) });
    expect(pair.gateway.logged).toEqual([]);
  });
});
