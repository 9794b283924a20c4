import { expect, test } from '@jest/globals';
import { setupFor } from '../../support/running-gateway.ts';
import { authors, type Pair, startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const ROUNDS = 12;
const CLIENTS = 10;

/** Statuses of requests that were sent together. */
async function crowd({ get }: Pair): Promise<number[]> {
  const responses = await Promise.all(Array.from({ length: CLIENTS }, () => get(authors)));
  await Promise.all(responses.map((response) => response.text()));
  return responses.map(({ status }) => status);
}

/** Gives the deployment another setting, so that its upstream is replaced. */
async function reload({ simulator, gateway }: Pair, settings: Record<string, unknown>): Promise<void> {
  const { origin } = simulator.deployments.submissions;
  const upstream = { origin, ca: simulator.ca, settings };
  await gateway.app.reload(async () => setupFor({ submissions: upstream }, {}, gateway.versions));
}

/** How often a count came again with the nonce that it had come with. */
function duplicates({ simulator }: Pair): number {
  const { nonces } = simulator.counts('submissions');
  return nonces.reduce((sum, { ncs }) => sum + ncs.length - new Set(ncs).size, 0);
}

test.each([
  ['shared', 'window'],
  ['exclusive', 'rising'],
] as const)('no count is used twice when connections break during a reload: %s', async (policy, nc) => {
  const digest = { noncePolicy: policy };
  const pair = await startPair({ qop: 'auth', nc }, { settings: { digest } });
  const { simulator } = pair;
  expect(await crowd(pair)).toEqual(Array(CLIENTS).fill(200));
  for (let round = 1; round <= ROUNDS; round += 1) {
    simulator.set('submissions', {
      faults: [
        { kind: 'reset-before-head', times: 4, when: 'authenticated' },
        { kind: 'delay', ms: 40, when: 'authenticated', times: CLIENTS },
      ],
    });
    const { accepted } = simulator.counts('submissions');
    const broken = crowd(pair);
    await until(() => simulator.counts('submissions').accepted >= accepted + 4);
    await reload(pair, { digest, connections: 20 + round });
    const [statuses, others] = await Promise.all([broken, crowd(pair)]);
    expect([round, ...statuses, ...others]).toEqual([round, ...Array(2 * CLIENTS).fill(200)]);
  }
  expect(simulator.counts('submissions').faults['reset-before-head']).toBe(4 * ROUNDS);
  expect(duplicates(pair)).toBe(0);
});
