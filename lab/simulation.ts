import { readFile } from 'node:fs/promises';
import { checkRecords } from './models/check-records.ts';
import type { RefusedTrace } from './models/traces.ts';
import type { Finding, LabOptions, LabPart, PartReport, Table } from './part.ts';
import { readRecords } from './simulation/flight.ts';
import { type JobReport, runJob } from './simulation/job.ts';
import { MUTATIONS } from './simulation/mutations.ts';

/** Seeds of one process: a new one begins with a clean memory. */
const SEEDS_AT_ONCE = 1_000;
/** Each mutation has to be found within so many seeds. */
const SEEDS_FOR_MUTATION = 1_000;
const IS_BEHAVIOUR = 'each record is a behaviour of the models';
/** The records of one in so many schedules are shown to the models: those of all took 85 % of the time. */
const RECORDED_EVERY = 10;

export const simulation: LabPart = {
  name: 'simulation',
  description:
    'The protocol of nonces, credentials and limits under virtual time, with faults that a seed decides.',
  run: (options) => {
    if (options.flight !== undefined) return replayRecords(options, options.flight);
    return options.replays ? replay(options) : runAll(options);
  },
};

/** Replays flight records of gateways, prints every event, and checks the records with the models. */
async function replayRecords({ seed, print }: LabOptions, flight: string): Promise<PartReport> {
  const reports: JobReport[] = [];
  await runJob({ first: seed, count: 1, flight, traces: true }, (report) => reports.push(report));
  for (const { trace = [] } of reports) print(`${trace.join('\n')}\n`);
  const { nonces, credentials, refused } = await checkRecords(readRecords(await readFile(flight, 'utf8')));
  const violations = [
    ...reports.flatMap((report) => report.violations),
    ...refused.map((trace) => ({ invariant: IS_BEHAVIOUR, detail: describe(trace) })),
  ];
  const findings = violations.map(({ invariant, detail }) => ({
    seed,
    what: `${invariant}: ${detail}`,
    replay: `npm run lab -- simulation --flight ${flight}`,
  }));
  const requests = reports.reduce((sum, report) => sum + report.requests, 0);
  const figures = {
    requests,
    nonces: nonces.traces,
    credentials: credentials.traces,
    events: nonces.events + credentials.events,
    skipped: nonces.skipped + credentials.skipped,
  };
  return { figures, tables: [], findings };
}

function describe({ name, shown, events }: RefusedTrace): string {
  return `${name} after ${shown} events of\n${events}`;
}

async function replay({ seed, print }: LabOptions): Promise<PartReport> {
  const reports: JobReport[] = [];
  await runJob({ first: seed, count: 1, traces: true, shrinks: true }, (report) => reports.push(report));
  for (const { plan, trace = [] } of reports)
    print(`${JSON.stringify(plan, undefined, 2)}\n${trace.join('\n')}\n`);
  return { figures: { schedules: reports.length }, tables: [], findings: findingsIn(reports) };
}

async function runAll(options: LabOptions): Promise<PartReport> {
  const { failed, ...figures } = await runSchedules(options);
  const mutations = await findMutations(options);
  const missed = mutations.filter(({ found }) => found === undefined);
  const table: Table = {
    title: 'Mutations, and how they were found',
    head: ['mutation', 'breaks', 'seeds', 'found by'],
    rows: mutations.map(({ name, breaks, seeds, found }) => [
      name,
      breaks,
      String(seeds),
      found ?? 'NOT FOUND',
    ]),
  };
  const findings = [
    ...findingsIn(failed),
    ...missed.map(({ name }) => ({
      seed: options.seed,
      what: `the mutation ${name} was not found`,
      replay: 'npm run lab -- simulation',
    })),
  ];
  return { figures: { ...figures, mutations: mutations.length }, tables: [table], findings };
}

interface ScheduleFigures {
  readonly schedules: number;
  readonly 'schedules a minute': number;
  readonly events: number;
  readonly requests: number;
  /** Nonces and credentials of which the models have been shown the records. */
  readonly nonces: number;
  readonly credentials: number;
  readonly failed: readonly JobReport[];
}

async function runSchedules(options: LabOptions): Promise<ScheduleFigures> {
  const { seed, runs = Number.POSITIVE_INFINITY, limitMs, processes, progress } = options;
  const seedsAtOnce = Math.min(SEEDS_AT_ONCE, Math.ceil(runs / processes));
  const begun = performance.now();
  const failed: JobReport[] = [];
  let next = seed;
  let schedules = 0;
  let events = 0;
  let requests = 0;
  let nonces = 0;
  let credentials = 0;
  const onReport = (report: JobReport): void => {
    schedules += 1;
    events += report.events;
    requests += report.requests;
    if (report.violations.length > 0) failed.push(report);
    progress(`${schedules} schedules, ${failed.length} failed`);
  };
  const work = async (): Promise<void> => {
    while (next < seed + runs && performance.now() - begun < limitMs) {
      const first = next;
      const count = Math.min(seedsAtOnce, seed + runs - first);
      next += count;
      const reports: JobReport[] = [];
      await runJob({ first, count, recordedEvery: RECORDED_EVERY }, (report) => {
        if (report.seed % RECORDED_EVERY === 0) reports.push(report);
        onReport(report);
      });
      const traced = await checkReports(reports);
      nonces += traced.nonces;
      credentials += traced.credentials;
      failed.push(...traced.failed);
    }
  };
  await Promise.all(Array.from({ length: processes }, work));
  const minutes = (performance.now() - begun) / 60_000;
  const figures = { schedules, 'schedules a minute': Math.round(schedules / minutes), events, requests };
  return { ...figures, nonces, credentials, failed };
}

interface CheckedReports {
  readonly nonces: number;
  readonly credentials: number;
  readonly failed: readonly JobReport[];
}

/** Checks the records of schedules with the models: `failed` are those that are no behaviour of them. */
async function checkReports(reports: readonly JobReport[]): Promise<CheckedReports> {
  const records = reports.map(({ flights = [] }) => readRecords(flights.join('')));
  const { nonces, credentials, refused } = await checkRecords(records.flat());
  const failed = refused.flatMap((trace) => {
    const report = reports.find((_, at) => records[at]?.includes(trace.record) === true);
    const violations = [{ invariant: IS_BEHAVIOUR, detail: describe(trace) }];
    return report === undefined ? [] : [{ ...report, violations }];
  });
  return { nonces: nonces.traces, credentials: credentials.traces, failed };
}

interface MutationResult {
  readonly name: string;
  readonly breaks: string;
  /** Seeds that were tried. */
  readonly seeds: number;
  /** The invariant that found it; undefined: none did. */
  readonly found: string | undefined;
}

async function findMutations({ progress }: LabOptions): Promise<MutationResult[]> {
  const results: MutationResult[] = [];
  for (const { name, breaks } of MUTATIONS) {
    progress(`mutation ${name}`);
    results.push({ breaks, ...(await findMutation(name, SEEDS_FOR_MUTATION)) });
  }
  return results;
}

/** Runs a mutation with one seed after the other until an invariant finds it. */
export async function findMutation(
  name: string,
  seeds: number,
): Promise<{ readonly name: string; readonly seeds: number; readonly found: string | undefined }> {
  let tried = 0;
  let found: string | undefined;
  const first = MUTATIONS.find((each) => each.name === name)?.first ?? 1;
  await runJob({ first, count: seeds, mutation: name, stopsAtViolation: true }, ({ violations }) => {
    tried += 1;
    found ??= violations[0]?.invariant;
  });
  return { name, seeds: tried, found };
}

function findingsIn(reports: readonly JobReport[]): Finding[] {
  return reports.flatMap(({ seed, violations: [first] }) =>
    first === undefined
      ? []
      : [
          {
            seed,
            what: `${first.invariant}: ${first.detail}`,
            replay: `npm run lab -- simulation --seed ${seed}`,
          },
        ],
  );
}
