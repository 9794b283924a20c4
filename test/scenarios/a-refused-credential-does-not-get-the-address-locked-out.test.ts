import { expect, test } from '@jest/globals';
import { authors, type Pair, problemOf, startPair } from '../support/simulated-pair.ts';

const HALF_A_MINUTE = 30_000;

async function startRefused(): Promise<Pair & { advance(): void }> {
  let now = 0;
  const pair = await startPair(
    { lockout: { failures: 5, durationMs: 60_000 } },
    { password: 'wrong', clock: { now: () => now } },
  );
  expect((await problemOf(await pair.get(authors))).code).toBe('upstream-credential-refused');
  const advance = (): void => {
    now += HALF_A_MINUTE;
  };
  return { ...pair, advance };
}

test('one trial each half minute reaches the upstream, however many ask', async () => {
  const { simulator, get, advance } = await startRefused();
  for (let trial = 1; trial <= 3; trial += 1) {
    advance();
    const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([502]));
    expect(simulator.counts('submissions').refused['wrong-response']).toBe(1 + trial);
  }
  expect(simulator.counts('submissions').lockedOut).toBe(0);
});

test('a password that was put right at the upstream is found by the next trial', async () => {
  const { simulator, gateway, get, advance } = await startRefused();
  simulator.set('submissions', { accounts: [{ username: 'demo-user', password: 'wrong', sites: ['demo'] }] });
  expect((await get(authors)).status).toBe(502);
  const circuit = { deployment: 'submissions' };
  expect(await gateway.metric('digest_gateway_circuit_state', circuit)).toBe(1);
  advance();
  const answers = await Promise.all(Array.from({ length: 20 }, () => get(authors)));
  expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThan(0);
  expect((await get(authors)).status).toBe(200);
  expect(await gateway.metric('digest_gateway_circuit_state', circuit)).toBe(0);
});

test('an answer that says nothing of the credential does not count as accepted', async () => {
  const { simulator, get, advance } = await startRefused();
  simulator.set('submissions', {
    accounts: [{ username: 'demo-user', password: 'wrong', sites: ['demo'] }],
    faults: [{ kind: 'status', status: 503, when: 'authenticated', times: 1 }],
  });
  const statuses: number[] = [];
  advance();
  for (let count = 0; count < 2; count += 1) statuses.push((await get(authors)).status);
  advance();
  statuses.push((await get(authors)).status);
  expect(statuses).toEqual([503, 502, 200]);
});
