import { expect, test } from '@jest/globals';
import { authors, type Pair, startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const PLACES = 4;
const ROUNDS = 3;
const settings = { limits: { concurrent: PLACES } };

const inFlight = ({ gateway }: Pair): Promise<number> => gateway.metric('digest_gateway_requests_in_flight');

async function statuses({ get }: Pair): Promise<Set<number>> {
  const answers = await Promise.all(Array.from({ length: PLACES }, () => get(authors)));
  await Promise.all(answers.map((answer) => answer.text()));
  return new Set(answers.map(({ status }) => status));
}

async function expectAllFree(pair: Pair): Promise<void> {
  await until(async () => (await inFlight(pair)) === 0);
  const answer = await pair.get(authors);
  await answer.text();
  expect([answer.status, answer.headers.get('ratelimit')]).toEqual([
    200,
    `"deployment-concurrent";r=${PLACES - 1}`,
  ]);
}

test('clients that leave', async () => {
  const pair = await startPair({}, { settings });
  expect(await statuses(pair)).toEqual(new Set([200]));
  pair.simulator.set('submissions', { faults: [{ kind: 'hang' }] });
  for (let round = 1; round <= ROUNDS; round += 1) {
    const leaving = new AbortController();
    const asked = Array.from({ length: PLACES }, () =>
      pair.get(authors, { signal: leaving.signal }).catch((error: Error) => error.name),
    );
    await until(async () => (await inFlight(pair)) === PLACES);
    const beyond = await pair.get(authors);
    expect([beyond.status, beyond.headers.get('retry-after')]).toEqual([429, '1']);
    leaving.abort();
    expect(new Set(await Promise.all(asked))).toEqual(new Set(['AbortError']));
    await until(async () => (await inFlight(pair)) === 0);
  }
  pair.simulator.set('submissions', { faults: [] });
  await expectAllFree(pair);
});

test('upstreams that fail', async () => {
  const pair = await startPair({ faults: [{ kind: 'reset-before-head' }] }, { settings });
  for (let round = 1; round <= ROUNDS; round += 1) expect(await statuses(pair)).toEqual(new Set([502]));
  pair.simulator.set('submissions', { faults: [] });
  await expectAllFree(pair);
});

test('requests that are answered', async () => {
  const pair = await startPair({}, { settings });
  for (let round = 1; round <= ROUNDS; round += 1) expect(await statuses(pair)).toEqual(new Set([200]));
  await expectAllFree(pair);
});
