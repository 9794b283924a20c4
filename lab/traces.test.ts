import { expect, test } from '@jest/globals';
import { defaultSettings } from '../src/simulator/settings.ts';
import { closing } from '../test/support/closing.ts';
import { startGateway, type TestDeployment } from '../test/support/gateway.ts';
import { startRedis } from '../test/support/redis.ts';
import { redisOptions, single } from '../test/support/redis-store.ts';
import { startSimulator } from '../test/support/simulator.ts';
import { needPackages } from '../test/support/system-packages.ts';
import { checkRecords, type RecordsReport } from './models/check-records.ts';
import { readRecords } from './simulation/flight.ts';
import { runJob } from './simulation/job.ts';
import { MUTATIONS } from './simulation/mutations.ts';
import { startGatewayChild } from './wire/gateway-child.ts';

/** Checks the flight records of simulated gateways. */
async function checkSeeds(first: number, count: number, mutation?: string): Promise<RecordsReport> {
  needPackages('spin', 'gcc');
  const flights: string[] = [];
  await runJob({ first, count, mutation, recordedEvery: 1 }, (report) =>
    flights.push(...(report.flights ?? [])),
  );
  return checkRecords(readRecords(flights.join('')));
}

test('the records of simulated gateways are behaviours of the models', async () => {
  const { nonces, credentials, refused } = await checkSeeds(11, 8);
  expect(nonces.traces).toBeGreaterThan(100);
  expect(nonces.events).toBeGreaterThan(1_000);
  expect(credentials.traces).toBeGreaterThan(50);
  expect(credentials.events).toBeGreaterThan(100);
  expect(refused).toEqual([]);
});

/** Each is a defect, a seed with which a simulated fleet meets it, and the model that has the rule which it breaks. */
test.each([
  ['same-count', 1, 'nonces'],
  ['ownership-of-parked', 13, 'nonces'],
  ['count-goes-back', 13, 'nonces'],
  ['credential-circuit', 5, 'credentials'],
  ['circuit-without-window', 6, 'credentials'],
  ['no-probe', 5, 'credentials'],
  ['unclear-probe-refuses', 814, 'credentials'],
  ['refused-while-unknown', 61, 'credentials'],
] as const)('the records of %s are none', async (mutation, seed, model) => {
  const report = await checkSeeds(seed, 1, mutation);
  expect(report[model].refused).not.toEqual([]);
});

/** An upstream, and how a gateway reaches it. */
async function startUpstream(nonceLifetimeMs: number): Promise<TestDeployment> {
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true, qop: 'auth' as const, nonceLifetimeMs };
  const simulator = await startSimulator({ deployments: { submissions } });
  closing.push(() => simulator.close());
  return { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
}

/** So many clients send so many requests each. */
async function load(origin: string, clients: number, requests: number): Promise<void> {
  const client = async (): Promise<void> => {
    for (let left = requests; left > 0; left -= 1) {
      const response = await fetch(`${origin}/submissions/echo`);
      await response.arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
}

test.each([undefined, 'same-count'])(
  'the record of a real gateway under load, with %s, is judged',
  async (name) => {
    needPackages('spin', 'gcc');
    await using gateway = await startGatewayChild({
      deployments: { submissions: await startUpstream(500) },
      top: {},
      mutation: MUTATIONS.find((each) => each.name === name),
    });
    await load(`http://127.0.0.1:${gateway.port}`, 12, 50);
    const { nonces, credentials, refused } = await checkRecords(readRecords(await gateway.flight()));
    // Each request begins an attempt, and ends it.
    if (name === undefined) expect(nonces.events).toBeGreaterThanOrEqual(1_200);
    expect([nonces.skipped, credentials.skipped]).toEqual([0, 0]);
    expect(credentials.events).toBeGreaterThanOrEqual(2);
    if (name === undefined) expect(refused).toEqual([]);
    else expect(refused).not.toEqual([]);
  },
);

test('the records of real gateways that leave nonces to one another are behaviours of the model', async () => {
  needPackages('spin', 'gcc');
  const submissions = await startUpstream(60_000);
  const redis = await startRedis();
  closing.push(() => redis.close());
  const records: string[] = [];
  const replace = async (): Promise<void> => {
    for (let left = 4; left > 0; left -= 1) {
      const gateway = await startGateway({ submissions }, {}, { redis: redisOptions(single(redis.port)) });
      await load(gateway.origin, 4, 10);
      await gateway.close();
      records.push(await gateway.plane.flightRecord());
    }
  };
  await Promise.all([replace(), replace()]);
  const read = readRecords(records.join(''));
  const taken = read.flatMap(({ events }) => events).filter(({ kind }) => kind === 'taken');
  expect(taken.length).toBeGreaterThan(0);
  const { nonces, refused } = await checkRecords(read);
  expect(nonces.events).toBeGreaterThanOrEqual(640);
  expect(refused).toEqual([]);
});
