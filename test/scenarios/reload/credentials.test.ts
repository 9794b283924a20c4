import { describe, expect, test } from '@jest/globals';
import { credentialSet } from '../../support/credential-set.ts';
import { setupFor } from '../../support/running-gateway.ts';
import { authors, type Pair, type PairOptions, problemOf, startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const NAME = 'submissions';
const RELOADS = 20;
const CROWD = 10;

/** Each makes a new upstream; the second one also a pool of nonces of its own. */
const CHANGES: [string, (round: number) => Record<string, unknown>][] = [
  ['connections', (round) => ({ connections: 20 + round })],
  ['the use of nonces', (round) => ({ digest: { noncePolicy: round % 2 === 0 ? 'exclusive' : 'shared' } })],
];

type Reload = Pick<PairOptions, 'password' | 'settings'> & { readonly next?: string };

async function reload(
  { simulator, gateway }: Pair,
  { password, next, settings = {} }: Reload,
): Promise<void> {
  const { origin } = simulator.deployments.submissions;
  const upstream = { origin, ca: simulator.ca, settings, ...(password !== undefined && { password }) };
  const setup = await setupFor({ [NAME]: upstream }, {}, gateway.versions);
  const set = await credentialSet(gateway, NAME, password ?? 'demo-api-key', next);
  await gateway.app.reload(() => Promise.resolve({ ...setup, credentials: new Map([[NAME, set]]) }));
}

async function crowd({ get }: Pair): Promise<number[]> {
  const responses = await Promise.all(Array.from({ length: CROWD }, () => get(authors)));
  await Promise.all(responses.map((response) => response.arrayBuffer()));
  return responses.map(({ status }) => status);
}

const wrong = ({ simulator }: Pair) => simulator.counts(NAME).refused['wrong-response'];

describe.each(CHANGES)('a reload that changes %s', (_, settingsOf) => {
  test('adds no attempt to those that a minute allows with a refused credential', async () => {
    let now = 0;
    const pair = await startPair(
      { lockout: { failures: 3, durationMs: 60_000 } },
      { password: 'wrong', clock: { now: () => now } },
    );
    const { gateway, simulator } = pair;
    expect(await crowd(pair)).toEqual(Array(CROWD).fill(502));
    for (let round = 1; round <= RELOADS; round += 1) {
      now = round * 2_900;
      await reload(pair, { password: 'wrong', settings: settingsOf(round) });
      expect(await gateway.metric('digest_gateway_circuit_state', { deployment: NAME })).toBe(1);
      expect([round, ...(await crowd(pair))]).toEqual([round, ...Array(CROWD).fill(502)]);
    }
    expect([wrong(pair), simulator.counts(NAME).lockedOut]).toEqual([2, 0]);
    expect(gateway.logged.filter(({ msg }) => msg === 'configuration reloaded')).toHaveLength(RELOADS);
  });

  test('leaves the version in use that was promoted', async () => {
    const pair = await startPair();
    const { simulator, gateway } = pair;
    expect((await pair.get(authors)).status).toBe(200);
    gateway.app.offer(await credentialSet(gateway, NAME, 'demo-api-key', 'later'));
    simulator.set(NAME, { accounts: [{ username: 'demo-user', password: 'later', sites: ['demo'] }] });
    expect((await pair.get(authors)).status).toBe(200);
    const before = wrong(pair);
    for (let round = 1; round <= RELOADS; round += 1) {
      await reload(pair, { next: 'later', settings: settingsOf(round) });
      expect((await pair.get(authors)).status).toBe(200);
    }
    const promoted = await gateway.metric('digest_gateway_credential_rotations_total', {
      result: 'promoted',
    });
    expect([wrong(pair), promoted]).toEqual([before, 1]);
  });
});

test('a credential that was accepted before a reload is called refused only after a probe', async () => {
  const pair = await startPair({ staleFlag: 'never' });
  const { simulator, gateway } = pair;
  expect((await pair.get(authors)).status).toBe(200);
  await reload(pair, { settings: { connections: 20 } });
  // The nonce in use, and the one that this request obtains.
  simulator.set(NAME, { faults: [{ kind: 'endless-401', when: 'authenticated', times: 2 }] });
  expect((await problemOf(await pair.get(authors))).code).toBe('upstream-protocol');
  expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
  expect(await gateway.metric('digest_gateway_credential_state', { deployment: NAME, state: 'in-use' })).toBe(
    1,
  );
});

test('requests that come after a reload wait for the probe that began before it', async () => {
  const pair = await startPair({ qop: 'auth', nc: 'window' });
  const { simulator, gateway } = pair;
  expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
  gateway.app.offer(await credentialSet(gateway, NAME, 'demo-api-key', 'later'));
  expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
  simulator.set(NAME, {
    accounts: [{ username: 'demo-user', password: 'later', sites: ['demo'] }],
    faults: [{ kind: 'delay', ms: 200, when: 'unauthenticated' }],
  });
  const before = wrong(pair);
  const { unauthenticated } = simulator.counts(NAME);
  const first = pair.get(authors);
  await until(() => simulator.counts(NAME).unauthenticated > unauthenticated);
  await reload(pair, { next: 'later', settings: { connections: 20 } });
  expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
  expect((await first).status).toBe(200);
  // The request, and the probe.
  expect(wrong(pair)).toBe(before + 2);
});

test('a reload does not wait for the requests of the one before', async () => {
  const pair = await startPair({ testPaths: true });
  const { simulator } = pair;
  expect((await pair.get(authors)).status).toBe(200);
  simulator.set(NAME, { faults: [{ kind: 'hang', when: 'authenticated', times: 1 }] });
  const { accepted } = simulator.counts(NAME);
  const leaving = new AbortController();
  const slow = pair.get(authors, { signal: leaving.signal });
  await until(() => simulator.counts(NAME).accepted > accepted);
  for (const round of [1, 2]) await reload(pair, { settings: { connections: 20 + round } });
  expect((await pair.get(authors)).status).toBe(200);
  leaving.abort();
  await expect(slow).rejects.toThrow();
});
