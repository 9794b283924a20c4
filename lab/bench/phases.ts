import type { Profiler } from 'node:inspector';
import { getBorderCharacters, table } from 'table';
import { untilSteady } from '../../test/bench/compare/measure.ts';
import { cpuBetween, cpuOf } from '../../test/bench/compare/process-tree.ts';
import { PHASES, type Phase, phaseOf } from './phase-rules.ts';
import { placeOf, withProfiled } from './profiled.ts';

/**
 * Where the CPU time of a request goes: takes a CPU profile of the gateway under load and adds up the time by phase.
 * Arguments: contender (gateway), document (2KB), connections (32), seconds (4).
 */
const [name = 'gateway', document = '2KB', connections = '32', seconds = '4'] = process.argv.slice(2);
const WARM_UP_MS = 8000;
/** Files that an unknown phase is shown for, at most. */
const SHOWN = 8;

const options = { name, document, connections: Number(connections), kind: 'cpu' } as const;
await withProfiled(options, async ({ running, load, toggle }) => {
  await untilSteady(running, load, WARM_UP_MS);
  await toggle();
  const before = cpuOf(running.pid);
  const begun = performance.now();
  const requests = await load.saturate(Number(seconds) * 1000);
  const elapsed = (performance.now() - begun) * 1e3;
  const after = cpuOf(running.pid);
  const profile = (await toggle()) as Profiler.Profile;
  const main = `${running.pid}/${running.pid}`;
  const all = cpuBetween(before, after) / 1e3;
  const mainThread = ((after.get(main) ?? 0) - (before.get(main) ?? 0)) / 1e3;
  print(profile, { requests, elapsed, mainThread, otherThreads: all - mainThread });
});

interface Cost {
  readonly requests: number;
  /** Microseconds that passed. */
  readonly elapsed: number;
  /** CPU time in microseconds. */
  readonly mainThread: number;
  readonly otherThreads: number;
}

interface Sums {
  /** Microseconds of the samples. */
  readonly byPhase: Map<Phase, number>;
  /** Of the phase `other`. */
  readonly byFile: Map<string, number>;
}

function print(profile: Profiler.Profile, { requests, elapsed, mainThread, otherThreads }: Cost): void {
  const { byPhase, byFile } = sumsOf(profile);
  // V8 takes reading from sockets for idling.
  const idle = Math.max(0, elapsed - mainThread - otherThreads);
  byPhase.set('event loop', Math.max(0, (byPhase.get('event loop') ?? 0) - idle));
  // The samples go on while another thread has the core.
  const sampled = [...byPhase.values()].reduce((sum, each) => sum + each, 0);
  const scale = mainThread / sampled;
  const total = mainThread + otherThreads;
  const row = (label: string, us: number): string[] => [
    label,
    (us / requests).toFixed(1),
    ((100 * us) / total).toFixed(1),
  ];
  const rows = [
    ...PHASES.map((phase) => row(phase, (byPhase.get(phase) ?? 0) * scale)),
    row('other threads', otherThreads),
    row('all', total),
  ];
  console.log(
    `${name}, ${document}, ${connections} connections, ${requests} requests, with the profiler's own cost\n`,
  );
  const config = {
    border: getBorderCharacters('void'),
    drawHorizontalLine: () => false,
    columnDefault: { alignment: 'right', paddingLeft: 0, paddingRight: 2 },
    columns: { 0: { alignment: 'left' } },
  } as const;
  console.log(table([['phase', 'us', '%'], ...rows], config).replace(/ +$/gm, ''));
  for (const [file, us] of [...byFile].sort(([, one], [, more]) => more - one).slice(0, SHOWN)) {
    console.log(`other: ${((us * scale) / requests).toFixed(2)} us in ${file}`);
  }
}

/** The time of each node belongs to the phase of its function, or to that of the nearest caller that has one. */
function sumsOf({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): Sums {
  const own = new Map<number, number>();
  for (const [index, id] of samples.entries()) own.set(id, (own.get(id) ?? 0) + (timeDeltas[index] ?? 0));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const byPhase = new Map<Phase, number>();
  const byFile = new Map<string, number>();
  const visit = (node: Profiler.ProfileNode | undefined, caller: Phase): void => {
    if (node === undefined) return;
    const { functionName } = node.callFrame;
    const { file } = placeOf(node.callFrame);
    // The profiler itself.
    if (file.startsWith('node:inspector') || file.endsWith('lab/bench/profiler.js')) return;
    const phase = phaseOf({ file, name: functionName }, caller);
    const us = own.get(node.id) ?? 0;
    byPhase.set(phase, (byPhase.get(phase) ?? 0) + us);
    if (phase === 'other') byFile.set(file || functionName, (byFile.get(file || functionName) ?? 0) + us);
    for (const child of node.children ?? []) visit(byId.get(child), phase);
  };
  visit(nodes[0], 'event loop');
  return { byPhase, byFile };
}
