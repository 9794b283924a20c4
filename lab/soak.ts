import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'undici';
import { z } from 'zod';
import { alwaysStale } from '../src/handshake/errors.ts';
import { defaultSettings } from '../src/simulator/settings.ts';
import type { Simulator } from '../src/simulator/simulator.ts';
import { QUERY } from '../test/bench/compare/documents.ts';
import { LoadConnections } from '../test/bench/compare/load.ts';
import { quantile, seededRandom, spreadOf } from '../test/bench/compare/statistics.ts';
import { type BenchUpstream, startBenchUpstream } from '../test/bench/compare/upstream.ts';
import { type Held, probed, readHeld } from '../test/full/held-resources.ts';
import { type GatewayProcess, startGatewayProcess } from '../test/support/gateway-process.ts';
import { startSimulator } from '../test/support/simulator.ts';
import { needPackages } from '../test/support/system-packages.ts';
import { checkRecords, type RecordsReport } from './models/check-records.ts';
import type { Finding, LabOptions, LabPart, PartReport } from './part.ts';
import { readRecords } from './simulation/flight.ts';

const CONNECTIONS = 32;
/** V8 compiles for the first 20,000 requests of a process; then it is measured how many it serves. */
const WARM_UP_MS = 15_000;
const FULL_LOAD_MS = 5_000;
const LOAD_SHARE = 0.5;
const LONGEST_STEP_MS = 60_000;
/** Steps at least: the first third is compared with the last. */
const STEPS = 18;
/** How much a figure may grow, beyond its noise. */
const GROWTH = 1.05;
const MIB = 2 ** 20;
/**
 * Lifetime of the nonces of the second upstream, in milliseconds. The flight recorder keeps some seconds at half load,
 * and the model judges only nonces of which it has the beginning; the one of lighttpd lives as long as the soak.
 */
const SHORT_NONCE_MS = 500;
const SHORT_PATH = '/echo';
const SHORT_CLIENTS = 8;
const SHORT_PAUSE_MS = 50;
/** Steps from one flight record to the next: a gateway writes one in 10 s at most. */
const STEPS_A_RECORD = 4;

export const soak: LabPart = {
  name: 'soak',
  description:
    'A gateway with an audit log at half load before lighttpd with Digest: memory, handles and latency are at the end as in the first minutes, and its flight records are behaviours of the models of nonces and credentials.',
  run,
};

/** The figures of one step. */
interface Step {
  readonly requests: number;
  /** The share of requests that were not measured, since this process was late. */
  readonly disturbed: number;
  readonly rss: number;
  readonly heap: number;
  readonly descriptors: number;
  readonly p50: number;
  readonly p99: number;
}

const FIGURES = {
  rss: 'resident memory',
  descriptors: 'file descriptors',
  p50: 'p50',
  p99: 'p99',
} as const satisfies Partial<Record<keyof Step, string>>;

async function run(options: LabOptions): Promise<PartReport> {
  needPackages('spin', 'gcc');
  const { seed, runs, limitMs } = options;
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'soak-'));
  stack.defer(() => rm(folder, { recursive: true }));
  const upstream = await startBenchUpstream();
  stack.defer(() => upstream.close());
  const simulator = await startShortNonces();
  stack.defer(() => simulator.close());
  const gateway = stack.use(await startSoaked(upstream, simulator, folder));
  const question = { origin: gateway.origin, path: `/digest/2KB${QUERY}`, length: 2048, headers: [] };
  const load = await LoadConnections.open(question, CONNECTIONS);
  stack.defer(() => load.close());

  await load.saturate(WARM_UP_MS);
  const capacity = (1_000 * (await load.saturate(FULL_LOAD_MS))) / FULL_LOAD_MS;
  const perSecond = Math.min(LOAD_SHARE * capacity, runs === undefined ? capacity : (1_000 * runs) / limitMs);
  const before = await readHeld(gateway, folder);
  const short = askForShortNonces(gateway.origin);
  stack.defer(async () => void (await short.end()));
  const steps: Step[] = [];
  const traces: RecordsReport[] = [];
  let unmeasured = 0;
  const stepMs = Math.min(LONGEST_STEP_MS, limitMs / STEPS);
  const random = seededRandom(seed);
  for (let left = Math.round(limitMs / stepMs); left > 0; left -= 1) {
    const { latencies, disturbed } = await load.arrive(perSecond, stepMs, random);
    // On a busy machine this process can be late for each request of a step.
    if (latencies.length === 0) unmeasured += 1;
    else steps.push(await stepOf(gateway, latencies, disturbed));
    if (left % STEPS_A_RECORD === 0) traces.push(await checkRecord(gateway));
    options.progress(
      `${left - 1} steps left, ${steps.reduce((sum, { requests }) => sum + requests, 0)} requests`,
    );
  }
  const ended = await short.end();
  const after = await readHeld(gateway, folder);
  return reportOf(options, {
    capacity,
    perSecond,
    steps,
    unmeasured,
    stepMs,
    traces,
    ...ended,
    before,
    after,
  });
}

function startShortNonces(): Promise<Simulator<'short'>> {
  const { submissions } = defaultSettings().deployments;
  const short = { ...submissions, testPaths: true, qop: 'auth' as const, nonceLifetimeMs: SHORT_NONCE_MS };
  return startSimulator({ deployments: { short } });
}

/** How the requests with short nonces went. */
interface ShortNonces {
  /** Failures, with how often each came. */
  readonly failures: ReadonlyMap<string, number>;
  /** Requests whose fresh nonce had expired when its answer was read: this machine was late. */
  readonly expired: number;
}

const Problem = z.object({ detail: z.string() });

/** Clients that send some requests a second to the upstream with short nonces until `end` is called. */
function askForShortNonces(origin: string): { end(): Promise<ShortNonces> } {
  const failures = new Map<string, number>();
  let expired = 0;
  let going = true;
  const client = async (): Promise<void> => {
    const connection = new Client(origin);
    while (going) {
      const begun = performance.now();
      const { statusCode, body } = await connection.request({ path: SHORT_PATH, method: 'GET' });
      if (statusCode === 200) await body.dump();
      else {
        const { detail } = Problem.parse(await body.json());
        const failure = `${statusCode} ${detail}`;
        // Two nonces were stale, and the second one had been issued after the request began.
        if (detail === alwaysStale().detail && performance.now() - begun > SHORT_NONCE_MS) expired += 1;
        else failures.set(failure, (failures.get(failure) ?? 0) + 1);
      }
      await delay(SHORT_PAUSE_MS);
    }
    await connection.close();
  };
  const clients = Promise.all(Array.from({ length: SHORT_CLIENTS }, client));
  // It is thrown by `end`.
  clients.catch(() => undefined);
  return {
    async end() {
      going = false;
      await clients;
      return { failures, expired };
    },
  };
}

async function checkRecord({ control }: GatewayProcess): Promise<RecordsReport> {
  const response = await fetch(`${control}/api/flight-record`);
  const text = await response.text();
  if (!response.ok) throw new Error(`no flight record: ${text}`);
  return checkRecords(readRecords(text));
}

async function startSoaked(
  upstream: BenchUpstream,
  simulator: Simulator<'short'>,
  folder: string,
): Promise<GatewayProcess> {
  const { origin, ca, username, password } = upstream;
  const keyFile = join(folder, 'key');
  await writeFile(keyFile, randomBytes(32).toString('hex'), { mode: 0o600 });
  return startGatewayProcess(
    {
      upstream: { origin, ca, username, password },
      short: {
        origin: simulator.deployments.short.origin,
        ca: simulator.ca,
        settings: { match: { pathPrefix: SHORT_PATH } },
      },
    },
    { audit: { directory: join(folder, 'audit'), keyFile } },
    probed(folder),
  );
}

async function stepOf(
  gateway: GatewayProcess,
  latencies: readonly number[],
  disturbed: number,
): Promise<Step> {
  const sorted = latencies.toSorted((one, other) => one - other);
  const requests = latencies.length + disturbed;
  return {
    requests,
    disturbed: disturbed / requests,
    rss: (await gateway.memory()).now,
    heap: await gateway.metric('nodejs_heap_size_used_bytes'),
    descriptors: (await readdir(`/proc/${gateway.pid}/fd`)).length,
    p50: quantile(sorted, 0.5),
    p99: quantile(sorted, 0.99),
  };
}

interface Soaked extends ShortNonces {
  readonly capacity: number;
  readonly perSecond: number;
  readonly steps: readonly Step[];
  /** Steps of which no request was measured. */
  readonly unmeasured: number;
  readonly stepMs: number;
  readonly traces: readonly RecordsReport[];
  /** At rest, after a garbage collection. */
  readonly before: Held;
  readonly after: Held;
}

function reportOf({ seed, limitMs }: LabOptions, soaked: Soaked): PartReport {
  const { capacity, perSecond, steps, unmeasured, stepMs, traces, failures, expired, before, after } = soaked;
  const findings: Finding[] = [];
  const replay = `npm run lab -- soak --minutes ${Math.ceil(limitMs / 60_000)}`;
  const judged = Object.entries(FIGURES).map(([key, name]) => {
    const { ratio, margin } = growthOf(steps.map((step) => step[key as keyof typeof FIGURES]));
    const text = `${ratio.toFixed(3)} ± ${margin.toFixed(3)}`;
    if (ratio - margin > GROWTH) findings.push({ seed, what: `${name} grew to ${text} times`, replay });
    return [name, text];
  });
  const heap = after.heap / before.heap;
  if (heap > GROWTH)
    findings.push({ seed, what: `the heap at rest grew to ${heap.toFixed(3)} times`, replay });
  for (const { name, shown, events } of traces.flatMap(({ refused }) => refused)) {
    const what = `the events of ${name} are no behaviour of the model from the ${shown}th on: ${events}`;
    findings.push({ seed, what, replay });
  }
  for (const [failure, times] of failures) {
    findings.push({ seed, what: `${times} times, with nonces of ${SHORT_NONCE_MS} ms: ${failure}`, replay });
  }
  const sum = (of: 'nonces' | 'credentials', figure: 'traces' | 'events' | 'skipped'): number =>
    traces.reduce((total, trace) => total + trace[of][figure], 0);
  const rows = steps.map((step, at) => [
    (((at + 1) * stepMs) / 60_000).toFixed(1),
    String(step.requests),
    (step.rss / MIB).toFixed(1),
    (step.heap / MIB).toFixed(1),
    String(step.descriptors),
    step.p50.toFixed(2),
    step.p99.toFixed(2),
    `${(100 * step.disturbed).toFixed(0)} %`,
  ]);
  return {
    figures: {
      requests: steps.reduce((sum, { requests }) => sum + requests, 0),
      'steps without a measured request': unmeasured,
      minutes: (((steps.length + unmeasured) * stepMs) / 60_000).toFixed(1),
      'requests a second at full load': Math.round(capacity),
      'requests a second': Math.round(perSecond),
      'nonces that the model judged': sum('nonces', 'traces'),
      'their events': sum('nonces', 'events'),
      'nonces without their beginning': sum('nonces', 'skipped'),
      'credentials that the model judged': sum('credentials', 'traces'),
      'events of credentials': sum('credentials', 'events'),
      'credentials without their beginning': sum('credentials', 'skipped'),
      'requests whose fresh nonce expired on a late machine': expired,
      'heap at rest before, in MiB': (before.heap / MIB).toFixed(2),
      'heap at rest after, in MiB': (after.heap / MIB).toFixed(2),
      'handles at rest before': before.handles,
      'handles at rest after': after.handles,
    },
    tables: [
      {
        title: 'The last third of the steps, as a multiple of the first',
        head: ['figure', 'ratio of the medians'],
        rows: judged,
      },
      {
        title: 'Steps',
        head: [
          'minute',
          'requests',
          'RSS in MiB',
          'heap in MiB',
          'file descriptors',
          'p50 in ms',
          'p99 in ms',
          'not measured',
        ],
        rows,
      },
    ],
    findings,
  };
}

/** The median of the last third as a multiple of that of the first third, and how much chance may change it. */
function growthOf(values: readonly number[]): { readonly ratio: number; readonly margin: number } {
  const count = Math.max(1, Math.floor(values.length / 3));
  const [first, last] = [spreadOf(values.slice(0, count)), spreadOf(values.slice(-count))];
  const ratio = last.median / first.median;
  return { ratio, margin: ratio * Math.hypot(first.margin / first.median, last.margin / last.median) };
}
