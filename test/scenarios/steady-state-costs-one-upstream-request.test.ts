import { describe, expect, test } from '@jest/globals';
import { authors, startPair } from '../support/simulated-pair.ts';

const qops = ['none', 'auth'] as const;

describe.each(qops)('qop %s', (qop) => {
  test('1,000 requests cost 1,000 upstream requests once a nonce is known', async () => {
    const { simulator, get } = await startPair({ qop, nc: qop === 'auth' ? 'window' : 'unchecked' });
    await (await get(authors)).text();
    const before = simulator.counts('submissions').requests;
    const statuses = new Set<number>();
    for (let batch = 0; batch < 50; batch += 1) {
      const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
      for (const answer of answers) {
        statuses.add(answer.status);
        await answer.text();
      }
    }
    expect([...statuses]).toEqual([200]);
    expect(simulator.counts('submissions').requests - before).toBe(1000);
  });

  test('50 clients at once on a cold start cost one challenge', async () => {
    const { simulator, get, gateway } = await startPair({ qop });
    const answers = await Promise.all(Array.from({ length: 50 }, () => get(authors)));
    expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
    const { challenges, requests } = simulator.counts('submissions');
    expect([challenges, requests]).toEqual([1, 51]);
    expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'cold' })).toBe(1);
    expect(await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'ok' })).toBe(50);
  });
});

test('a cold start waits for one handshake also when its answer is slow to come', async () => {
  const { simulator, get } = await startPair({ faults: [{ kind: 'delay', ms: 100, times: 2 }] });
  const answers = await Promise.all(Array.from({ length: 10 }, () => get(authors)));
  expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
  expect(simulator.counts('submissions').challenges).toBe(1);
});

test('an opener that leaves hands the handshake on to the next who waits', async () => {
  const { simulator, get } = await startPair({ faults: [{ kind: 'hang', times: 1 }] });
  const leaving = new AbortController();
  const first = get(authors, { signal: leaving.signal }).catch((error: Error) => error.name);
  await requestsReach(simulator, 1);
  const others = Array.from({ length: 5 }, () => get(authors));
  leaving.abort();
  expect(await first).toBe('AbortError');
  expect((await Promise.all(others)).map(({ status }) => status)).toEqual(Array(5).fill(200));
  expect(simulator.counts('submissions').challenges).toBe(1);
});

async function requestsReach(
  simulator: { counts(name: 'submissions'): { requests: number } },
  wanted: number,
): Promise<void> {
  while (simulator.counts('submissions').requests < wanted) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
