import { describe, expect, test } from '@jest/globals';
import { type JobReport, runJob } from './simulation/job.ts';
import { findMutation } from './simulation.ts';

async function run(job: Parameters<typeof runJob>[0]): Promise<JobReport[]> {
  const reports: JobReport[] = [];
  await runJob(job, (report) => reports.push(report));
  return reports;
}

test('100 schedules keep every invariant', async () => {
  const reports = await run({ first: 1, count: 100 });
  expect(reports).toHaveLength(100);
  expect(reports.filter(({ violations }) => violations.length > 0)).toEqual([]);
  // The schedules did something.
  expect(reports.reduce((sum, { requests }) => sum + requests, 0)).toBeGreaterThan(3_000);
}, 600_000);

test('the same seed gives the same events in two processes', async () => {
  const job = { first: 1, count: 12, traces: true };
  const [one, other] = await Promise.all([run(job), run(job)]);
  const lines = one.flatMap(({ trace = [] }) => trace);
  expect(lines.length).toBeGreaterThan(5_000);
  expect(other.flatMap(({ trace = [] }) => trace).join('\n')).toBe(lines.join('\n'));
});

test.each(['same-count', 'credential-circuit'])('finds the mutation %s', async (name) => {
  const { found } = await findMutation(name, 100);
  expect(found).toBeDefined();
});

/** Defects that the simulation found: the mutation takes their mending away. */
describe.each<[mutation: string, seed: number]>([
  ['refused-while-unknown', 61],
  ['own-head-closes', 297],
])('%s', (mutation, seed) => {
  test(`seed ${seed} finds it without its mending, and passes with it`, async () => {
    const [without] = await run({ first: seed, count: 1, mutation });
    expect(without?.violations).not.toEqual([]);
    const [mended] = await run({ first: seed, count: 1 });
    expect(mended?.violations).toEqual([]);
  });
});
