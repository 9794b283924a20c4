import { setTimeout as delay } from 'node:timers/promises';
import { builtGateway } from '../../test/bench/compare/built-gateway.ts';
import { CONTENDERS, type RunningContender, startContender } from '../../test/bench/compare/contenders.ts';
import { writeGatewayConfig } from '../../test/bench/compare/gateway-config.ts';
import { LoadConnections } from '../../test/bench/compare/load.ts';
import { type CpuTimes, cpuOf } from '../../test/bench/compare/process-tree.ts';
import { spreadOf } from '../../test/bench/compare/statistics.ts';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';

/**
 * CPU time a second that the primary and its workers take, without requests and with a steady rate of them. Several
 * programs are measured in turn, each alive all the time. Arguments: rounds (4), seconds of a slice (10), workers (2),
 * requests per second (200), the files of the programs (that of this checkout).
 */
const rounds = Number(process.argv[2] ?? 4);
const seconds = Number(process.argv[3] ?? 10);
const workers = Number(process.argv[4] ?? 2);
const rate = Number(process.argv[5] ?? 200);
const CONNECTIONS = 16;
const WARM_UP_MS = 5_000;
/** Limits report more rarely after ten seconds without requests. */
const QUIET_MS = 12_000;

/** Milliseconds of CPU time a second. */
interface Use {
  readonly primary: number;
  readonly workers: number;
}

const upstream = await startBenchUpstream();
const running: RunningContender[] = [];
try {
  const [node = '', ...flagsAndFile] = await builtGateway();
  const flags = flagsAndFile.slice(0, -1);
  const programs = process.argv.length > 6 ? process.argv.slice(6) : flagsAndFile.slice(-1);
  for (const program of programs) running.push(await start([node, ...flags, program]));
  for (const gateway of running) await withLoad(gateway, (load) => load.saturate(WARM_UP_MS));
  const rest = running.map((): Use[] => []);
  const loaded = running.map((): Use[] => []);
  for (let round = 0; round < rounds; round += 1) {
    await delay(QUIET_MS);
    for (const [at, gateway] of running.entries()) {
      rest[at]?.push(await useOf(gateway, () => delay(seconds * 1000)));
    }
    for (const [at, gateway] of running.entries()) {
      const use = await withLoad(gateway, (load) =>
        useOf(gateway, () => load.arrive(rate, seconds * 1000, Math.random)),
      );
      loaded[at]?.push(use);
    }
  }
  for (const [at, program] of programs.entries()) {
    console.log(program);
    console.log(`  without requests: ${described(rest[at] ?? [])}`);
    console.log(`  ${rate} requests/s: ${described(loaded[at] ?? [])}`);
  }
} finally {
  await Promise.all(running.map((gateway) => gateway.close()));
  await upstream.close();
}

function start(command: readonly string[]): Promise<RunningContender> {
  const contender = CONTENDERS.find(({ name }) => name === 'gateway');
  if (contender === undefined) throw new Error('There is no gateway.');
  return startContender(
    {
      ...contender,
      prepare: async (place, bench) => [
        ...[...command, 'serve', '--config'],
        await writeGatewayConfig(place, bench, 256, 'write', { workers }),
      ],
    },
    upstream,
    undefined,
  );
}

async function withLoad<T>(
  gateway: RunningContender,
  use: (load: LoadConnections) => Promise<T>,
): Promise<T> {
  const load = await LoadConnections.open(gateway.question('2KB'), CONNECTIONS);
  try {
    return await use(load);
  } finally {
    await load.close();
  }
}

async function useOf({ pid }: RunningContender, meanwhile: () => Promise<unknown>): Promise<Use> {
  const before = cpuOf(pid);
  const begun = performance.now();
  await meanwhile();
  const elapsedMs = performance.now() - begun;
  const perSecond = (ns: number): number => ns / 1e3 / elapsedMs;
  const after = [...cpuOf(pid)];
  const of = (isWanted: (thread: string) => boolean): number =>
    perSecond(
      usedBy(
        before,
        after.filter(([thread]) => isWanted(thread)),
      ),
    );
  const isOfPrimary = (thread: string): boolean => thread.startsWith(`${pid}/`);
  return { primary: of(isOfPrimary), workers: of((thread) => !isOfPrimary(thread)) };
}

function usedBy(before: CpuTimes, after: readonly (readonly [string, number])[]): number {
  return after.reduce((sum, [thread, time]) => sum + time - (before.get(thread) ?? 0), 0);
}

function described(uses: readonly Use[]): string {
  const median = (of: (use: Use) => number): string => spreadOf(uses.map(of)).median.toFixed(1);
  return `primary ${median((use) => use.primary)}, workers ${median((use) => use.workers)} ms of CPU time a second`;
}
