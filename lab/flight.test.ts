import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { defaultSettings } from '../src/simulator/settings.ts';
import { useFolders } from '../test/support/audit-log.ts';
import { closing } from '../test/support/closing.ts';
import { startSimulator } from '../test/support/simulator.ts';
import { type JobReport, runJob } from './simulation/job.ts';
import { MUTATIONS } from './simulation/mutations.ts';
import { startGatewayChild } from './wire/gateway-child.ts';

const folder = useFolders();

async function run(job: Parameters<typeof runJob>[0]): Promise<JobReport> {
  const reports: JobReport[] = [];
  await runJob(job, (report) => reports.push(report));
  return reports[0] as JobReport;
}

async function replay(records: string, mutation?: string): Promise<string[]> {
  const flight = join(await folder(), 'flight.jsonl');
  await writeFile(flight, records);
  const { violations, requests } = await run({ first: 0, count: 1, flight, mutation });
  expect(requests).toBeGreaterThan(5);
  return violations.map(({ invariant }) => invariant);
}

/**
 * A defect, the seed with which a simulated fleet meets it, and whether it is in a process, or in what the process is
 * given.
 */
test.each([
  ['same-count', 1, 'process'],
  ['credential-circuit', 5, 'process'],
  ['circuit-without-window', 6, 'process'],
  ['ownership-of-parked', 13, 'input'],
  ['count-goes-back', 13, 'input'],
])('the records of %s, seed %d, show it again', async (mutation, seed, place) => {
  const { violations, flights = [] } = await run({ first: seed, count: 1, mutation });
  const [{ invariant } = { invariant: 'none' }] = violations;
  const records = flights.join('');
  expect(await replay(records, mutation)).toContain(invariant);
  // Mended, a process does not do it again; what it was given by others stays as it was.
  if (place === 'process') expect(await replay(records)).toEqual([]);
});

test.each([undefined, 'same-count'])('the record of a real gateway, with %s, is replayed', async (name) => {
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true, qop: 'auth' as const };
  const simulator = await startSimulator({ deployments: { submissions } });
  closing.push(() => simulator.close());
  const { origin } = simulator.deployments.submissions;
  const mutation = MUTATIONS.find((each) => each.name === name);
  const deployment = { origin, ca: simulator.ca };
  await using gateway = await startGatewayChild({
    deployments: { submissions: deployment },
    top: {},
    mutation,
  });
  const ask = async (): Promise<number> => {
    const response = await fetch(`http://127.0.0.1:${gateway.port}/submissions/echo`);
    await response.arrayBuffer();
    return response.status;
  };
  for (let round = 0; round < 3; round += 1) await Promise.all(Array.from({ length: 8 }, ask));
  const violations = await replay(await gateway.flight(), name);
  if (name === undefined) expect(violations).toEqual([]);
  else expect(violations).toContain('no nc is sent twice with a nonce');
});
