import { setTimeout as delay } from 'node:timers/promises';
import type { RunningContender } from './contenders.ts';
import { type DocumentName, QUERY } from './documents.ts';
import { LoadConnections } from './load.ts';
import { cpuBetween, cpuOf, machineCpu, memoryOf } from './process-tree.ts';
import { quantile, shuffled, spreadOf } from './statistics.ts';

/** A kind of load. */
export interface Cell {
  readonly document: DocumentName;
  readonly connections: number;
}

export interface Plan {
  readonly cells: readonly Cell[];
  /** Rounds stop at `most`, or when the next one would end after the deadline; but there are as many as `fewest`. */
  readonly rounds: { readonly fewest: number; readonly most: number };
  readonly latencyRounds: number;
  /** Connections for the memory in `MemoryUse.crowd`. */
  readonly crowd: number;
  /** Requests for the small document before the rounds; not all of them if that takes longer than `most` milliseconds. */
  readonly warmUp: { readonly requests: number; readonly most: number };
  /** Milliseconds of each slice. */
  readonly ms: {
    readonly slice: number;
    readonly latency: number;
    readonly crowd: number;
    /** Time of the whole run, start included. */
    readonly total: number;
  };
}

/** CPU time of one contender under one kind of load in one round. */
export interface CpuSlice extends Cell {
  readonly contender: string;
  readonly round: number;
  readonly requests: number;
  /** Requests that were sent once more, because the contender closed a connection that it had kept. */
  readonly repeated: number;
  /** Microseconds of CPU time a request. */
  readonly cpuUs: number;
  /** CPU time as a part of the time that passed; well below 1: the contender waited for load or upstream. */
  readonly busy: number;
}

/** Milliseconds from sending to the end of the response. */
export interface LatencySlice {
  readonly contender: string;
  readonly round: number;
  readonly requests: number;
  readonly p50: number;
  readonly p99: number;
}

/** Resident bytes of all processes of a contender. */
export interface MemoryUse {
  readonly contender: string;
  /** With 32 connections, after load of the small document. */
  readonly steady: number;
  /** With as many connections as `Plan.crowd`, after everything else. */
  readonly crowd: number;
  readonly peak: number;
}

export interface Measurements {
  readonly cpu: readonly CpuSlice[];
  /** Cores that programs beside the benchmark took during each round. */
  readonly others: readonly number[];
  readonly latency: readonly LatencySlice[];
  /** Requests per second at which latency was measured. */
  readonly latencyRate: number;
  readonly memory: readonly MemoryUse[];
}

export interface MeasureDeps {
  readonly random: () => number;
  /** When the run should be over, on the clock of `performance.now()`. */
  readonly deadline: number;
  /** Starts all contenders anew before each further round; undefined: they stay. */
  readonly restart?: (() => Promise<readonly RunningContender[]>) | undefined;
  progress(text: string): void;
}

/** The cell from which the rate for latencies and the steady memory come. */
export const MAIN_CELL: Cell = { document: '2KB', connections: 32 };
const WARM_UP_STEP_MS = 100;
/** Connections for latencies: more than are under way at half load. */
const LATENCY_CONNECTIONS = 64;
const LATENCY_LOAD = 0.5;
/** Requests per second that the load program itself sends without being late. */
const HIGHEST_RATE = 2000;
/** About what opening a connection takes, with its first request. */
const OPEN_MS = 1;
/** How long a contender has to finish what follows a response, such as writing it down, in milliseconds. */
const SETTLE_MS = 5;

/**
 * Measures all contenders, which stay alive all the time. A round has one slice of every contender for each cell, the
 * contenders in random order, so that those of one round met the same machine.
 */
export async function measure(
  plan: Plan,
  first: readonly RunningContender[],
  deps: MeasureDeps,
): Promise<Measurements> {
  let contenders = first;
  let steady = await warmUp(plan, contenders, deps);
  const cpu: CpuSlice[] = [];
  const others: number[] = [];
  const lastRoundEnd = deps.deadline - msAfterRounds(plan, contenders.length);
  let longest = 0;
  for (let round = 1; round <= plan.rounds.most; round += 1) {
    const begun = performance.now();
    if (round > plan.rounds.fewest && begun + longest > lastRoundEnd) break;
    if (round > 1 && deps.restart !== undefined) {
      contenders = await deps.restart();
      steady = await warmUp(plan, contenders, deps);
    }
    deps.progress(`round ${round}`);
    const foreign = foreignCpu();
    for (const cell of shuffled(plan.cells, deps.random)) {
      for (const contender of shuffled(contenders, deps.random)) {
        cpu.push({ ...(await cpuSlice(contender, cell, plan.ms.slice)), round });
      }
    }
    others.push(foreign());
    longest = Math.max(longest, performance.now() - begun);
  }
  const latencyRate = modestRate(cpu);
  const latency = await latencies(plan, contenders, latencyRate, deps);
  const memory = await crowdMemory(plan, contenders, steady, deps);
  return { cpu, others, latency, latencyRate, memory };
}

/** Time for latencies and memory, opening connections included. */
function msAfterRounds({ latencyRounds, crowd, ms }: Plan, contenders: number): number {
  const open = (connections: number): number => OPEN_MS * connections;
  const latency = latencyRounds * (ms.latency + open(LATENCY_CONNECTIONS));
  return contenders * (latency + ms.crowd + open(crowd));
}

/** Begins to watch; the function resolves to the cores that others took since then. */
function foreignCpu(): () => number {
  const begun = performance.now();
  const machine = machineCpu();
  const own = cpuOf(process.pid);
  return () => {
    const foreignNs = machineCpu() - machine - cpuBetween(own, cpuOf(process.pid));
    return Math.max(0, foreignNs / 1e6 / (performance.now() - begun));
  };
}

/** Lets compilers see the code, connects to the upstream, and resolves to the resident memory in steady use. */
async function warmUp(
  plan: Plan,
  contenders: readonly RunningContender[],
  { progress }: MeasureDeps,
): Promise<ReadonlyMap<string, number>> {
  const steady = new Map<string, number>();
  for (const running of contenders) {
    progress(`warming up ${running.contender.name}`);
    await underLoad(running, MAIN_CELL, async (load) => {
      await saturateFor(load, plan.warmUp);
      steady.set(running.contender.name, memoryOf(running.pid).now);
    });
    const large: Cell = { document: '256KB', connections: MAIN_CELL.connections };
    await underLoad(running, large, (load) =>
      saturateFor(load, { requests: plan.warmUp.requests / 10, most: plan.warmUp.most / 3 }),
    );
  }
  return steady;
}

async function saturateFor(load: LoadConnections, { requests, most }: Plan['warmUp']): Promise<void> {
  const end = performance.now() + most;
  for (let left = requests; left > 0 && performance.now() < end; ) {
    left -= await load.saturate(WARM_UP_STEP_MS);
  }
}

async function cpuSlice(
  running: RunningContender,
  cell: Cell,
  milliseconds: number,
): Promise<Omit<CpuSlice, 'round'>> {
  return underLoad(running, cell, async (load) => {
    await delay(SETTLE_MS);
    const before = cpuOf(running.pid);
    const begun = performance.now();
    const requests = await load.saturate(milliseconds);
    const elapsedMs = performance.now() - begun;
    await delay(SETTLE_MS);
    const cpuNs = cpuBetween(before, cpuOf(running.pid));
    return {
      ...cell,
      contender: running.contender.name,
      requests,
      repeated: load.repeated,
      cpuUs: cpuNs / 1e3 / requests,
      busy: cpuNs / 1e6 / elapsedMs,
    };
  });
}

/** Half of the requests per second that one core can serve with the contender that needs most CPU time; not too many. */
function modestRate(slices: readonly CpuSlice[]): number {
  const { document, connections } = MAIN_CELL;
  const byContender = Map.groupBy(
    slices.filter((slice) => slice.document === document && slice.connections === connections),
    ({ contender }) => contender,
  );
  const costs = [...byContender.values()].map((all) => spreadOf(all.map(({ cpuUs }) => cpuUs)).median);
  return Math.min(HIGHEST_RATE, Math.round((LATENCY_LOAD * 1e6) / Math.max(...costs)));
}

async function latencies(
  plan: Plan,
  contenders: readonly RunningContender[],
  rate: number,
  { random, progress }: MeasureDeps,
): Promise<LatencySlice[]> {
  const slices: LatencySlice[] = [];
  const cell: Cell = { ...MAIN_CELL, connections: LATENCY_CONNECTIONS };
  for (let round = 1; round <= plan.latencyRounds; round += 1) {
    progress(`latencies at ${rate} requests/s, round ${round}`);
    for (const running of shuffled(contenders, random)) {
      const values = await underLoad(running, cell, (load) => load.arrive(rate, plan.ms.latency, random));
      const sorted = values.toSorted((one, other) => one - other);
      slices.push({
        contender: running.contender.name,
        round,
        requests: values.length,
        p50: quantile(sorted, 0.5),
        p99: quantile(sorted, 0.99),
      });
    }
  }
  return slices;
}

async function crowdMemory(
  plan: Plan,
  contenders: readonly RunningContender[],
  steady: ReadonlyMap<string, number>,
  { progress }: MeasureDeps,
): Promise<MemoryUse[]> {
  const memory: MemoryUse[] = [];
  for (const running of contenders) {
    const { name } = running.contender;
    progress(`memory of ${name} with ${plan.crowd} connections`);
    const cell: Cell = { ...MAIN_CELL, connections: plan.crowd };
    const { now, peak } = await underLoad(running, cell, async (load) => {
      await load.saturate(plan.ms.crowd);
      return memoryOf(running.pid);
    });
    memory.push({ contender: name, steady: steady.get(name) ?? 0, crowd: now, peak });
  }
  return memory;
}

/** Opens connections to a contender for the time of `use`. An error names the contender. */
async function underLoad<T>(
  running: RunningContender,
  { document, connections }: Cell,
  use: (load: LoadConnections) => Promise<T>,
): Promise<T> {
  const question = running.question(document);
  try {
    const load = await LoadConnections.open(question, connections);
    try {
      return await use(load);
    } finally {
      await load.close();
    }
  } catch (cause) {
    const what = question.path.replace(QUERY, '');
    throw new Error(`${running.contender.name} failed at ${what} with ${connections} connections.`, {
      cause,
    });
  }
}
