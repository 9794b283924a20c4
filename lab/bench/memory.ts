import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { getBorderCharacters, table } from 'table';
import { builtGateway } from '../../test/bench/compare/built-gateway.ts';
import { CONTENDERS, startContender } from '../../test/bench/compare/contenders.ts';
import { writeGatewayConfig } from '../../test/bench/compare/gateway-config.ts';
import { LoadConnections } from '../../test/bench/compare/load.ts';
import { memoryOf } from '../../test/bench/compare/process-tree.ts';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';

/**
 * Memory of `serve` with 1, 2 and 4 workers: idle, and under as much load as it takes from 32 and 256 connections, 2 KB
 * a response, audit log on. Each gateway starts in a control group of its own, which counts what counts against the limit
 * of a container, a page that processes share once. The working set is what Kubernetes compares with the limit: all but
 * files that the kernel can drop. Arguments: seconds of each load (40), numbers of workers (1,2,4), limits in MiB
 * (none,512,256). With a limit that is too small, the row says that the kernel killed a process. Needs root and control
 * groups of version 1.
 */
const seconds = Number(process.argv[2] ?? 40);
const numbers = (process.argv[3] ?? '1,2,4').split(',').map(Number);
const limits = (process.argv[4] ?? 'none,512,256').split(',');
const CONNECTIONS = [32, 256];
const SLICE_MS = 1000;
const SAMPLE_MS = 100;
const MIB = 1024 ** 2;

const parent = join('/sys/fs/cgroup/memory', `digest-gateway-bench-${process.pid}`);
const rows: string[][] = [];
const upstream = await startBenchUpstream();
await mkdir(parent);
try {
  for (const limit of limits) {
    for (const workers of numbers) rows.push(...(await measure(workers, limit)));
  }
} finally {
  await upstream.close();
  await rmdir(parent);
}
const config = {
  border: getBorderCharacters('void'),
  drawHorizontalLine: () => false,
  columnDefault: { alignment: 'right', paddingLeft: 0, paddingRight: 2 },
} as const;
const head = ['limit', 'workers', 'connections', 'requests/s', 'RSS', 'working set', 'peak', 'killed'];
console.log(table([head, ...rows], config).replace(/ +$/gm, ''));
console.log(`MiB; ${seconds} s of load a row. RSS: sum over all processes, shared pages count in each.`);

/** The rows of one gateway: idle, then each number of connections. */
async function measure(workers: number, limit: string): Promise<string[][]> {
  const group = join(parent, `${workers}-${limit}`);
  await mkdir(group);
  if (limit !== 'none') await writeFile(join(group, 'memory.limit_in_bytes'), `${Number(limit) * MIB}`);
  const contender = CONTENDERS.find(({ name }) => name === 'gateway');
  if (contender === undefined) throw new Error('There is no gateway.');
  const gateway = await startContender(
    {
      ...contender,
      prepare: async (place, bench) => [
        // Only memory that a process takes when it is in the group is counted there.
        ...['sh', '-c', `echo $$ > ${group}/cgroup.procs; exec "$@"`, 'sh'],
        ...(await builtGateway()),
        ...['serve', '--config', await writeGatewayConfig(place, bench, 256, 'write', { workers })],
      ],
    },
    upstream,
    undefined,
  );
  const found: string[][] = [];
  const row = async (connections: number, rate: number, sets: readonly number[]): Promise<void> => {
    const figures = [memoryOf(gateway.pid).now, sets.at(-1) ?? 0, Math.max(...sets)];
    const inMiB = figures.map((bytes) => (bytes / MIB).toFixed(0));
    const killed = await killsIn(group);
    found.push([
      limit,
      `${workers}`,
      `${connections}`,
      rate.toFixed(0),
      ...inMiB,
      killed === 0 ? '' : `${killed}`,
    ]);
  };
  try {
    await row(0, 0, [await workingSet(group)]);
    for (const connections of CONNECTIONS) {
      const load = await LoadConnections.open(gateway.question('2KB'), connections);
      const sampling = new AbortController();
      const samples = sampled(group, sampling.signal);
      const [begun, end] = [performance.now(), performance.now() + seconds * 1000];
      let requests = 0;
      try {
        while (performance.now() < end) requests += await load.saturate(SLICE_MS);
      } finally {
        sampling.abort();
        await load.close();
      }
      await row(connections, (requests * 1000) / (performance.now() - begun), await samples);
    }
  } catch (error) {
    // A connection breaks when the kernel kills its worker; without a kill it is an error of the measurement.
    const killed = await killsIn(group);
    if (killed === 0) throw error;
    found.push([limit, `${workers}`, '-', '-', '-', '-', '-', `${killed}`]);
  } finally {
    await gateway.close();
    await rmdir(group);
  }
  return found;
}

async function sampled(group: string, signal: AbortSignal): Promise<number[]> {
  const samples: number[] = [];
  do {
    samples.push(await workingSet(group));
    await delay(SAMPLE_MS);
  } while (!signal.aborted);
  return samples;
}

async function workingSet(group: string): Promise<number> {
  const usage = Number(await readFile(join(group, 'memory.usage_in_bytes'), 'utf8'));
  return usage - (await numberIn(join(group, 'memory.stat'), 'total_inactive_file'));
}

function killsIn(group: string): Promise<number> {
  return numberIn(join(group, 'memory.oom_control'), 'oom_kill');
}

async function numberIn(file: string, name: string): Promise<number> {
  const [, number] = new RegExp(`^${name} (\\d+)$`, 'm').exec(await readFile(file, 'utf8')) ?? [];
  if (number === undefined) throw new Error(`${file} has no ${name}`);
  return Number(number);
}
