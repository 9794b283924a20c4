import { mkdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { getBorderCharacters, table } from 'table';
import { builtGateway } from './compare/built-gateway.ts';
import { CONTENDERS, type RunningContender, startContender } from './compare/contenders.ts';
import { writeGatewayConfig } from './compare/gateway-config.ts';
import { LoadConnections } from './compare/load.ts';
import { cpuBetween, cpuOf } from './compare/process-tree.ts';
import { ratios, shuffled, spreadOf } from './compare/statistics.ts';
import { startBenchUpstream } from './compare/upstream.ts';

/**
 * Requests per second and CPU time a request of 1, 2 and 4 workers that have a core each. A core is a part of a real
 * one (a quota of the kernel's), so that load and upstream do not slow the workers down, although they use the same
 * machine. All gateways stay alive; each round has a slice of each one, in random order; ratios are to one worker in
 * the same round. Arguments: rounds (12), the part of a core (0.25). Needs root and control groups of version 1.
 */
const rounds = Number(process.argv[2] ?? 12);
const part = Number(process.argv[3] ?? 0.25);
const WORKERS = [1, 2, 4] as const;
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

const group = join(GROUPS, `digest-gateway-bench-${process.pid}`);
/** In the order in which they were made. */
const groups: string[] = [];
const upstream = await startBenchUpstream();
const gateways = new Map<number, RunningContender>();
try {
  for (const workers of WORKERS) gateways.set(workers, await start(workers));
  for (const workers of WORKERS) await warmUp(workers);
  await makeGroup(group);
  for (const workers of WORKERS) await limitCores(workers);
  const slices = new Map(WORKERS.map((workers) => [workers as number, new Map<number, Slice>()]));
  for (let round = 1; round <= rounds; round += 1) {
    for (const workers of shuffled([...WORKERS], Math.random)) {
      slices.get(workers)?.set(round, await measure(workers));
    }
  }
  print(slices);
} finally {
  await Promise.all([...gateways.values()].map((running) => running.close()));
  await upstream.close();
  // A control group can be removed when its processes have ended and its children are removed.
  for (const folder of groups.toReversed()) await rmdir(folder);
}

function gatewayWith(workers: number): RunningContender {
  const running = gateways.get(workers);
  if (running === undefined) throw new Error('The gateway is not running.');
  return running;
}

function start(workers: number): Promise<RunningContender> {
  const contender = CONTENDERS.find(({ name }) => name === 'gateway');
  if (contender === undefined) throw new Error('There is no gateway.');
  return startContender(
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
}

async function warmUp(workers: number): Promise<void> {
  await underLoad(workers, async (load) => {
    let requests = 0;
    while (requests < workers * WARM_UP_REQUESTS) requests += await load.saturate(WARM_UP_SLICE_MS);
  });
}

function measure(workers: number): Promise<Slice> {
  const { pid } = gatewayWith(workers);
  return underLoad(workers, async (load) => {
    await load.saturate(LEAD_MS);
    const [before, begun] = [cpuOf(pid), performance.now()];
    const requests = await load.saturate(SLICE_MS);
    const cpuUs = cpuBetween(before, cpuOf(pid)) / 1e3 / requests;
    return { rate: (1000 * requests) / (performance.now() - begun), cpuUs };
  });
}

async function underLoad<T>(workers: number, use: (load: LoadConnections) => Promise<T>): Promise<T> {
  const load = await LoadConnections.open(gatewayWith(workers).question('2KB'), workers * CONNECTIONS);
  try {
    return await use(load);
  } finally {
    await load.close();
  }
}

/** Gives each worker a core, and the primary a share of the cores of its workers. */
async function limitCores(workers: number): Promise<void> {
  const all = join(group, `workers-${workers}`);
  await limit(all, workers * part);
  const primary = gatewayWith(workers).pid;
  const processes = new Set([...cpuOf(primary).keys()].map((thread) => Number(thread.split('/')[0])));
  for (const pid of processes) {
    const own = join(all, `${pid}`);
    await limit(own, pid === primary ? workers * part : part);
    await writeFile(join(own, 'cgroup.procs'), `${pid}`);
  }
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

function print(slices: ReadonlyMap<number, ReadonlyMap<number, Slice>>): void {
  const figures = (workers: number, of: (slice: Slice) => number): Map<number, number> =>
    new Map([...(slices.get(workers) ?? [])].map(([round, slice]) => [round, of(slice)]));
  const cells = (workers: number, of: (slice: Slice) => number): string[] => {
    const own = figures(workers, of);
    const ratio = spreadOf(ratios(own, figures(1, of)));
    const percent = ((100 * ratio.margin) / ratio.median).toFixed(0);
    return [
      spreadOf([...own.values()]).median.toFixed(0),
      workers === 1 ? '1' : `${ratio.median.toFixed(2)}±${percent}%`,
    ];
  };
  const rows = WORKERS.map((workers) => [
    `${workers}`,
    ...cells(workers, ({ rate }) => rate),
    ...cells(workers, ({ cpuUs }) => cpuUs),
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
