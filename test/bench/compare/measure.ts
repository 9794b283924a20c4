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
  /** Kinds of load for every contender. */
  readonly cells: readonly Cell[];
  /** Contenders that are measured in more detail: these kinds of load, and latency. */
  readonly focus: { readonly contenders: readonly string[]; readonly cells: readonly Cell[] };
  /** Rounds stop at `most`, or when the next one would end after the deadline; but there are as many as `fewest`. */
  readonly rounds: { readonly fewest: number; readonly most: number };
  readonly latencyRounds: number;
  /** Connections for the memory in `MemoryUse.crowd`. */
  readonly crowd: number;
  readonly ms: {
    /** The longest warm-up of a contender on Node.js, with the small document. */
    readonly warmUp: number;
    /** The part of each slice that is counted. */
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
  /** Requests that are not counted, because the load program was late. */
  readonly disturbed: number;
  /** Undefined if every request was disturbed. */
  readonly p50: number | undefined;
  readonly p99: number | undefined;
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

/** Bytes allocated for each request of the main cell by a contender on Node.js. */
export interface AllocationSlice {
  readonly contender: string;
  readonly round: number;
  readonly requests: number;
  readonly heap: number;
  /** Buffers outside of V8's heap. */
  readonly external: number;
}

/** The cost of a contender during its warm-up. */
export interface WarmUp {
  readonly contender: string;
  readonly requests: number;
  /** Microseconds of CPU time a request, of each step. */
  readonly cpuUs: readonly number[];
}

export interface Measurements {
  readonly warmUps: readonly WarmUp[];
  readonly cpu: readonly CpuSlice[];
  /** Cores that programs beside the benchmark took during each round. */
  readonly others: readonly number[];
  readonly latency: readonly LatencySlice[];
  /** Requests per second at which latency was measured. */
  readonly latencyRate: number;
  readonly allocations: readonly AllocationSlice[];
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

/** The cell from which the rate for latencies, the allocations and the steady memory come. */
export const MAIN_CELL: Cell = { document: '2KB', connections: 32 };
const WARM_UP_STEP_MS = 500;
/** Requests in which V8 compiles what a request needs. On a busy machine the cost does not fall in every step. */
const NODE_WARM_UP_REQUESTS = 50_000;
/** A warm-up is over when so many steps have brought nothing. */
const STEADY_STEPS = 5;
/** As a part of the lowest cost so far. */
const GAIN = 0.03;
/** Of the longest warm-up, for a contender that has no compilers at run time. */
const SHORT_WARM_UP = 1 / 8;
/** Of a contender's longest warm-up, for each kind of load after the first one. */
const OTHER_WARM_UP = 1 / 4;
/** Load before the part of a slice that counts: after idling, caches are cold and V8's heap has shrunk. */
const LEAD_MS = 100;
/** Connections for latencies: more than are under way at half load. */
const LATENCY_CONNECTIONS = 64;
const LATENCY_LOAD = 0.5;
/** Requests per second that the load program itself sends without being late. */
const HIGHEST_RATE = 4000;
const ALLOCATION_ROUNDS = 3;
const ALLOCATION_MS = 100;
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
  const steady = new Map<string, number>();
  const warmUps = await warmUpAll(plan, contenders, steady, deps);
  const cpu: CpuSlice[] = [];
  const others: number[] = [];
  const lastRoundEnd = deps.deadline - msAfterRounds(plan, contenders);
  let longest = 0;
  for (let round = 1; round <= plan.rounds.most; round += 1) {
    const begun = performance.now();
    if (round > plan.rounds.fewest && begun + longest > lastRoundEnd) break;
    if (round > 1 && deps.restart !== undefined) {
      contenders = await deps.restart();
      await warmUpAll(plan, contenders, steady, deps);
    }
    deps.progress(`round ${round}`);
    const foreign = foreignCpu();
    for (const { cell, running } of slicesOf(plan, contenders, deps.random)) {
      cpu.push({ ...(await cpuSlice(running, cell, plan.ms.slice)), round });
    }
    others.push(foreign());
    longest = Math.max(longest, performance.now() - begun);
  }
  const focus = contenders.filter((running) => isInFocus(plan, running));
  const latencyRate = modestRate(cpu, focus);
  const latency = await latencies(plan, focus, latencyRate, deps);
  const allocations = await allocationsOf(contenders, deps);
  const memory = await crowdMemory(plan, contenders, steady, deps);
  return { warmUps, cpu, others, latency, latencyRate, allocations, memory };
}

/** All kinds of load, those with few connections first. */
export function cellsOf({ cells, focus }: Plan): Cell[] {
  return [...cells, ...focus.cells].toSorted((one, other) => one.connections - other.connections);
}

/** The slices of one round: cell by cell, so that the ratios of a cell are of contenders that took turns. */
function slicesOf(
  plan: Plan,
  contenders: readonly RunningContender[],
  random: () => number,
): { cell: Cell; running: RunningContender }[] {
  return shuffled([...plan.cells, ...plan.focus.cells], random).flatMap((cell) =>
    shuffled(contenders, random)
      .filter((running) => plan.cells.includes(cell) || isInFocus(plan, running))
      .map((running) => ({ cell, running })),
  );
}

/** Time for latencies, allocations and memory, opening connections included. */
function msAfterRounds(
  { latencyRounds, focus, crowd, ms }: Plan,
  contenders: readonly RunningContender[],
): number {
  const open = (connections: number): number => OPEN_MS * connections;
  const latency = latencyRounds * (ms.latency + open(LATENCY_CONNECTIONS));
  const allocations = ALLOCATION_ROUNDS * ALLOCATION_MS + LEAD_MS + open(MAIN_CELL.connections);
  return focus.contenders.length * latency + contenders.length * (allocations + ms.crowd + open(crowd));
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

/** Warms up each contender, which connects to the upstream with that, and notes its resident memory in steady use. */
async function warmUpAll(
  plan: Plan,
  contenders: readonly RunningContender[],
  steady: Map<string, number>,
  { progress }: MeasureDeps,
): Promise<WarmUp[]> {
  const warmUps: WarmUp[] = [];
  for (const running of contenders) {
    const { name, onNode } = running.contender;
    progress(`warming up ${name}`);
    const longest = onNode === true ? plan.ms.warmUp : plan.ms.warmUp * SHORT_WARM_UP;
    await underLoad(running, MAIN_CELL, async (load) => {
      warmUps.push(await untilSteady(running, load, longest, onNode === true ? NODE_WARM_UP_REQUESTS : 0));
      steady.set(name, memoryOf(running.pid).now);
    });
    // Large bodies and requests that come alone take other paths, which are compiled with their first slices otherwise.
    const others = [...plan.cells, ...(isInFocus(plan, running) ? plan.focus.cells : [])].filter(
      ({ document, connections }) => document !== MAIN_CELL.document || connections < MAIN_CELL.connections,
    );
    for (const cell of others) {
      await underLoad(running, cell, (load) => untilSteady(running, load, longest * OTHER_WARM_UP));
    }
  }
  return warmUps;
}

function isInFocus({ focus }: Plan, { contender }: RunningContender): boolean {
  return focus.contenders.includes(contender.name);
}

/** Sends requests until compilers have done their work: the cost of a request falls no further. */
export async function untilSteady(
  running: RunningContender,
  load: LoadConnections,
  mostMs: number,
  fewest = 0,
): Promise<WarmUp> {
  const end = performance.now() + mostMs;
  const cpuUs: number[] = [];
  let requests = 0;
  let [lowest, vain] = [Number.POSITIVE_INFINITY, 0];
  while ((requests < fewest || vain < STEADY_STEPS) && performance.now() < end) {
    const before = cpuOf(running.pid);
    const sent = await load.saturate(WARM_UP_STEP_MS);
    const cost = cpuBetween(before, cpuOf(running.pid)) / 1e3 / sent;
    requests += sent;
    cpuUs.push(cost);
    vain = cost < lowest * (1 - GAIN) ? 0 : vain + 1;
    lowest = Math.min(lowest, cost);
  }
  return { contender: running.contender.name, requests, cpuUs };
}

async function cpuSlice(
  running: RunningContender,
  cell: Cell,
  milliseconds: number,
): Promise<Omit<CpuSlice, 'round'>> {
  return underLoad(running, cell, async (load) => {
    await load.saturate(LEAD_MS);
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

/**
 * Half of the requests per second that one core can serve with the one of them that needs most CPU time; not too many.
 */
function modestRate(slices: readonly CpuSlice[], contenders: readonly RunningContender[]): number {
  const costs = contenders.map(({ contender: { name } }) => {
    const own = slices.filter(
      ({ contender, document, connections }) =>
        contender === name && document === MAIN_CELL.document && connections === MAIN_CELL.connections,
    );
    return spreadOf(own.map(({ cpuUs }) => cpuUs)).median;
  });
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
      const { latencies, disturbed } = await underLoad(running, cell, async (load) => {
        await load.arrive(rate, LEAD_MS, random);
        return load.arrive(rate, plan.ms.latency, random);
      });
      const sorted = latencies.toSorted((one, other) => one - other);
      slices.push({
        contender: running.contender.name,
        round,
        requests: sorted.length,
        disturbed,
        p50: sorted.length === 0 ? undefined : quantile(sorted, 0.5),
        p99: sorted.length === 0 ? undefined : quantile(sorted, 0.99),
      });
    }
  }
  return slices;
}

/** Allocations for each request of the contenders on Node.js. After the CPU time, because counting costs some. */
async function allocationsOf(
  contenders: readonly RunningContender[],
  { progress }: MeasureDeps,
): Promise<AllocationSlice[]> {
  const slices: AllocationSlice[] = [];
  for (const running of contenders) {
    if (running.contender.onNode !== true) continue;
    progress(`allocations of ${running.contender.name}`);
    await underLoad(running, MAIN_CELL, async (load) => {
      await load.saturate(LEAD_MS);
      for (let round = 1; round <= ALLOCATION_ROUNDS; round += 1) {
        slices.push({ ...(await allocationSlice(running, load)), round });
      }
    });
  }
  return slices;
}

async function allocationSlice(
  running: RunningContender,
  load: LoadConnections,
): Promise<Omit<AllocationSlice, 'round'>> {
  const before = await running.allocations();
  const requests = await load.saturate(ALLOCATION_MS);
  const after = await running.allocations();
  return {
    contender: running.contender.name,
    requests,
    heap: (after.heap - before.heap) / requests,
    external: (after.external - before.external) / requests,
  };
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
