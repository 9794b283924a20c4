import { mkdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { getBorderCharacters, table } from 'table';
import { builtGateway } from '../../test/bench/compare/built-gateway.ts';
import { CONTENDERS, type RunningContender, startContender } from '../../test/bench/compare/contenders.ts';
import { writeGatewayConfig } from '../../test/bench/compare/gateway-config.ts';
import { LoadConnections } from '../../test/bench/compare/load.ts';
import { cpuBetween, cpuOf } from '../../test/bench/compare/process-tree.ts';
import { ratios, shuffled, spreadOf } from '../../test/bench/compare/statistics.ts';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';

/**
 * Requests per second and CPU time a request of 1, 2 and 4 workers that have a core each, and of as many gateways that
 * know nothing of each other (`2 apart`): how much two processes on one machine slow each other down. A core is a part of
 * a real one (a quota of the kernel's), so that load and upstream do not slow the workers down, although they use the
 * same machine. All gateways stay alive; each round has a slice of each one, in random order; ratios are to one worker in
 * the same round. Arguments: rounds (12), the part of a core (0.35), what is measured (1,2,2 apart,4). Needs root and
 * control groups of version 1.
 */
const rounds = Number(process.argv[2] ?? 12);
const part = Number(process.argv[3] ?? 0.35);
const names = (process.argv[4] ?? '1,2,2 apart,4').split(',');
const ONE = '1';
/** For each worker, so that a request waits equally long with any number of them. */
const CONNECTIONS = 32;
/** Requests after which V8 has compiled what a worker uses: the first ones cost up to twice as much. */
const WARM_UP_REQUESTS = 40_000;
const WARM_UP_SLICE_MS = 1000;
const LEAD_MS = 300;
const SLICE_MS = 1500;
/** The time over which the kernel grants a quota. */
const PERIOD_US = 10_000;
const GROUPS = '/sys/fs/cgroup/cpu';

interface Slice {
  /** Requests per second. */
  readonly rate: number;
  /** Microseconds of CPU time a request. */
  readonly cpuUs: number;
}

/** Gateways that are measured together. */
interface Fleet {
  readonly name: string;
  /** Of all gateways together. */
  readonly workers: number;
  readonly gateways: readonly RunningContender[];
  readonly slices: Map<number, Slice>;
}

const group = join(GROUPS, `digest-gateway-bench-${process.pid}`);
/** In the order in which they were made. */
const groups: string[] = [];
const upstream = await startBenchUpstream();
const running: RunningContender[] = [];
try {
  const fleets: Fleet[] = [];
  for (const name of names) fleets.push(await startFleet(name));
  for (const fleet of fleets) await warmUp(fleet);
  await makeGroup(group);
  for (const fleet of fleets) await limitCores(fleet);
  for (let round = 1; round <= rounds; round += 1) {
    for (const fleet of shuffled(fleets, Math.random)) fleet.slices.set(round, await measure(fleet));
  }
  print(fleets);
} finally {
  await Promise.all(running.map((gateway) => gateway.close()));
  await upstream.close();
  // A control group can be removed when its processes have ended and its children are removed.
  for (const folder of groups.toReversed()) await rmdir(folder);
}

/** `name`: the number of workers; with `apart`, the number of gateways of one process. */
async function startFleet(name: string): Promise<Fleet> {
  const [count = '', apart] = name.split(' ');
  const workers = Number(count);
  const gateways: RunningContender[] = [];
  for (let started = 0; started < (apart === undefined ? 1 : workers); started += 1) {
    gateways.push(await start(apart === undefined ? workers : 1));
  }
  return { name, workers, gateways, slices: new Map() };
}

async function start(workers: number): Promise<RunningContender> {
  const contender = CONTENDERS.find(({ name }) => name === 'gateway');
  if (contender === undefined) throw new Error('There is no gateway.');
  const gateway = await startContender(
    {
      ...contender,
      prepare: async (place, bench) => [
        ...(await builtGateway()),
        ...['serve', '--config', await writeGatewayConfig(place, bench, 256, 'write', { workers })],
      ],
    },
    upstream,
    undefined,
  );
  running.push(gateway);
  return gateway;
}

async function warmUp(fleet: Fleet): Promise<void> {
  await underLoad(fleet, async (saturate) => {
    let requests = 0;
    while (requests < fleet.workers * WARM_UP_REQUESTS) requests += await saturate(WARM_UP_SLICE_MS);
  });
}

function measure(fleet: Fleet): Promise<Slice> {
  return underLoad(fleet, async (saturate) => {
    await saturate(LEAD_MS);
    const before = fleet.gateways.map(({ pid }) => cpuOf(pid));
    const begun = performance.now();
    const requests = await saturate(SLICE_MS);
    const used = fleet.gateways.map(({ pid }, at) => cpuBetween(before[at] ?? new Map(), cpuOf(pid)));
    const cpuUs = used.reduce((sum, each) => sum + each, 0) / 1e3 / requests;
    return { rate: (1000 * requests) / (performance.now() - begun), cpuUs };
  });
}

async function underLoad<T>(
  { gateways, workers }: Fleet,
  use: (saturate: (ms: number) => Promise<number>) => Promise<T>,
): Promise<T> {
  const connections = (workers / gateways.length) * CONNECTIONS;
  const loads: LoadConnections[] = [];
  try {
    for (const gateway of gateways)
      loads.push(await LoadConnections.open(gateway.question('2KB'), connections));
    return await use(async (ms) => {
      const counts = await Promise.all(loads.map((load) => load.saturate(ms)));
      return counts.reduce((sum, count) => sum + count, 0);
    });
  } finally {
    await Promise.all(loads.map((load) => load.close()));
  }
}

/** Gives each worker a core, and the primary a share of the cores of its workers. */
async function limitCores({ name, workers, gateways }: Fleet): Promise<void> {
  const all = join(group, name.replace(' ', '-'));
  await limit(all, workers * part);
  for (const { pid: first } of gateways) {
    const isPrimary = gateways.length < workers;
    for (const pid of processesOf(first)) {
      const own = join(all, `${pid}`);
      await limit(own, isPrimary && pid === first ? workers * part : part);
      await writeFile(join(own, 'cgroup.procs'), `${pid}`);
    }
  }
}

function processesOf(pid: number): ReadonlySet<number> {
  return new Set([...cpuOf(pid).keys()].map((thread) => Number(thread.split('/')[0])));
}

async function limit(folder: string, cores: number): Promise<void> {
  await makeGroup(folder);
  await writeFile(join(folder, 'cpu.cfs_period_us'), `${PERIOD_US}`);
  await writeFile(join(folder, 'cpu.cfs_quota_us'), `${Math.round(cores * PERIOD_US)}`);
}

async function makeGroup(folder: string): Promise<void> {
  await mkdir(folder);
  groups.push(folder);
}

function print(fleets: readonly Fleet[]): void {
  const one = fleets.find(({ name }) => name === ONE);
  const figures = (fleet: Fleet | undefined, of: (slice: Slice) => number): Map<number, number> =>
    new Map([...(fleet?.slices ?? [])].map(([round, slice]) => [round, of(slice)]));
  const cells = (fleet: Fleet, of: (slice: Slice) => number): string[] => {
    const own = figures(fleet, of);
    const ratio = spreadOf(ratios(own, figures(one, of)));
    const percent = ((100 * ratio.margin) / ratio.median).toFixed(0);
    return [
      spreadOf([...own.values()]).median.toFixed(0),
      fleet === one ? '1' : `${ratio.median.toFixed(2)}±${percent}%`,
    ];
  };
  const rows = fleets.map((fleet) => [
    fleet.name,
    ...cells(fleet, ({ rate }) => rate),
    ...cells(fleet, ({ cpuUs }) => cpuUs),
  ]);
  const config = {
    border: getBorderCharacters('void'),
    drawHorizontalLine: () => false,
    columnDefault: { alignment: 'right', paddingLeft: 0, paddingRight: 2 },
  } as const;
  const head = ['workers', 'requests/s', 'ratio', 'us', 'ratio'];
  console.log(table([head, ...rows], config).replace(/ +$/gm, ''));
  console.log(`${rounds} rounds; ${part} of a core for each worker, ${CONNECTIONS} connections for each.`);
}
