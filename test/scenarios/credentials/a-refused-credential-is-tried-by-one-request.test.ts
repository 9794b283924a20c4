import { expect, test } from '@jest/globals';
import { credentialSet } from '../../support/credential-set.ts';
import { authors, type Pair, problemOf, startPair } from '../../support/simulated-pair.ts';

const CROWD = 50;
const NAME = 'submissions';

function crowd({ get }: Pair): Promise<Response[]> {
  return Promise.all(Array.from({ length: CROWD }, () => get(authors)));
}

const statuses = (answers: readonly Response[]) => new Set(answers.map(({ status }) => status));

/** Attempts with a nonce of their own that were refused: each of them could have been spared but the first. */
const refusals = ({ gateway }: Pair) =>
  gateway.metric('digest_gateway_upstream_attempts_total', { result: 'refused' });

function changePassword({ simulator }: Pair, password: string): void {
  simulator.set(NAME, { accounts: [{ username: 'demo-user', password, sites: ['demo'] }] });
}

test('a password that changes while many are under way costs two attempts more than they make: one, and its confirmation', async () => {
  const pair = await startPair({ faults: [{ kind: 'delay', ms: 50 }] });
  expect((await pair.get(authors)).status).toBe(200);
  changePassword(pair, 'changed');
  expect(statuses(await crowd(pair))).toEqual(new Set([502]));
  expect(await refusals(pair)).toBe(2);
  expect(pair.simulator.counts(NAME).refused['wrong-response']).toBeLessThanOrEqual(CROWD + 2);
});

test.each(['auto', 'exclusive', 'single-use'])(
  'with every version wrong, two attempts in each minute reach the upstream: %s',
  async (noncePolicy) => {
    let now = 0;
    const pair = await startPair(
      { lockout: { failures: 20, durationMs: 60_000 } },
      { password: 'wrong', clock: { now: () => now }, settings: { digest: { noncePolicy } } },
    );
    pair.gateway.app.offer(await credentialSet(pair.gateway, NAME, 'wrong', 'wrong, too'));
    const attempts: number[] = [];
    let before = 0;
    for (let second = 0; second <= 240; second += 10) {
      now = second * 1000;
      expect(statuses(await crowd(pair))).toEqual(new Set([502]));
      const { refused } = pair.simulator.counts(NAME);
      for (; before < refused['wrong-response']; before += 1) attempts.push(second);
    }
    expect(attempts).toEqual([0, 0, 60, 90, 120, 150, 180, 210, 240]);
    expect(pair.simulator.counts(NAME).lockedOut).toBe(0);
    const answer = await fetch(`${pair.gateway.control}/readyz`);
    expect([answer.status, await answer.text()]).toEqual([
      503,
      expect.stringContaining('credential submissions'),
    ]);
  },
);

test('attemptsWhenRefused says how many attempts a minute has', async () => {
  let now = 0;
  const settings = { digest: { attemptsWhenRefused: 6 } };
  const pair = await startPair({}, { password: 'wrong', clock: { now: () => now }, settings });
  for (let second = 0; second < 60; second += 5) {
    now = second * 1000;
    expect((await problemOf(await pair.get(authors))).code).toBe('upstream-credential-refused');
  }
  expect(pair.simulator.counts(NAME).refused['wrong-response']).toBe(6);
});

test('versions that are all refused take turns, and the one that is right again serves', async () => {
  let now = 0;
  const pair = await startPair({}, { password: 'wrong', clock: { now: () => now } });
  pair.gateway.app.offer(await credentialSet(pair.gateway, NAME, 'wrong', 'later'));
  expect((await pair.get(authors)).status).toBe(502);
  changePassword(pair, 'later');
  const seen: number[] = [];
  for (const second of [30, 60, 90]) {
    now = second * 1000;
    seen.push((await pair.get(authors)).status);
  }
  expect(seen).toEqual([502, 502, 200]);
});

test('a nonce that was refused without stale says nothing against the credential', async () => {
  const pair = await startPair({ staleFlag: 'never', faults: [{ kind: 'delay', ms: 30 }] });
  for (let round = 0; round < 3; round += 1) {
    expect(statuses(await crowd(pair))).toEqual(new Set([200]));
    pair.simulator.reset(NAME);
  }
  expect(await refusals(pair)).toBe(0);
});
