import { getBorderCharacters, table } from 'table';
import { builtGateway } from '../../test/bench/compare/built-gateway.ts';
import { CONTENDERS, type RunningContender, startContender } from '../../test/bench/compare/contenders.ts';
import { divideCores } from '../../test/bench/compare/cores.ts';
import { API_KEY, type Scale, writeGatewayConfig } from '../../test/bench/compare/gateway-config.ts';
import { LoadConnections, type Question } from '../../test/bench/compare/load.ts';
import { untilSteady } from '../../test/bench/compare/measure.ts';
import { cpuBetween, cpuOf } from '../../test/bench/compare/process-tree.ts';
import { ratios, shuffled, spreadOf, verdictOn } from '../../test/bench/compare/statistics.ts';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';

/**
 * How the cost of a request grows with the configuration and with the request. All gateways stay alive; each round has
 * a slice of each case, in random order; ratios are to the first case of a group in the same round. Argument: rounds (8).
 */
const rounds = Number(process.argv[2] ?? 8);
const CONNECTIONS = 32;
/** For each worker. V8 compiles for the first 20,000 requests of a process, which cost up to twice as much. */
const WARM_UP_MS = 10_000;
const SHORT_MS = 1000;
const LEAD_MS = 60;
const SLICE_MS = 200;
/** A ratio from which work grows although it should not. */
const GROWS = 1.1;

interface Case {
  readonly label: string;
  /** Cases with the same scale share a process. */
  readonly scale: Scale;
  /** Changes the request. */
  readonly ask?: (question: Question) => Question;
}

const ONE: Scale = {};
const BASE: Case = { label: '1', scale: ONE };

/** The first case of each group is what the others are compared with. */
const GROUPS: Readonly<Record<string, readonly Case[]>> = {
  // How much two processes of the same configuration differ.
  processes: [BASE, { label: 'another', scale: {} }],
  workers: [BASE, ...[2, 4].map((workers) => ({ label: `${workers}`, scale: { workers } }))],
  deployments: [
    BASE,
    ...[100, 2000].map((deployments) => ({ label: `${deployments}`, scale: { deployments } })),
  ],
  'clients by address': [BASE, { label: '10000', scale: { clients: 10_000 } }],
  'clients by key': [1, 10_000].map((clients) => ({
    label: `${clients}`,
    scale: { clients, identify: 'key' as const },
  })),
  sites: [BASE, { label: '1000', scale: { sites: 1000 } }],
  'bytes of the target': [100, 1000, 4000, 8000].map((length) => ({
    label: `${length}`,
    scale: ONE,
    ask: (question: Question) => withLength(question, length),
  })),
  'request headers': [10, 30, 100].map((count) => ({
    label: `${count}`,
    scale: ONE,
    ask: (question: Question) => withHeaders(question, count),
  })),
};
const CASES = [...new Set(Object.values(GROUPS).flat())];

const pinned = await divideCores();
const upstream = await startBenchUpstream();
const gateways = new Map<Scale, RunningContender>();
try {
  for (const { scale } of CASES) if (!gateways.has(scale)) gateways.set(scale, await start(scale));
  const warm = new Set<Scale>();
  for (const each of CASES) {
    const ms = warm.has(each.scale) ? SHORT_MS : WARM_UP_MS * (each.scale.workers ?? 1);
    warm.add(each.scale);
    await underLoad(each, (load, running) => untilSteady(running, load, ms));
  }
  const costs = new Map<Case, Map<number, number>>(CASES.map((each) => [each, new Map()]));
  for (let round = 1; round <= rounds; round += 1) {
    for (const each of shuffled(CASES, Math.random)) costs.get(each)?.set(round, await costOf(each));
  }
  print(costs);
} finally {
  await Promise.all([...gateways.values()].map((running) => running.close()));
  await upstream.close();
}

function start(scale: Scale): Promise<RunningContender> {
  const contender = CONTENDERS.find(({ name }) => name === 'gateway');
  if (contender === undefined) throw new Error('There is no gateway.');
  return startContender(
    {
      ...contender,
      prepare: async (place, bench) => [
        ...(await builtGateway()),
        ...['serve', '--config', await writeGatewayConfig(place, bench, 256, 'write', scale)],
      ],
      headers: scale.identify === 'key' ? ['x-api-key', API_KEY] : [],
    },
    upstream,
    pinned,
  );
}

async function costOf(each: Case): Promise<number> {
  return underLoad(each, async (load, { pid }) => {
    await load.saturate(LEAD_MS);
    const before = cpuOf(pid);
    const requests = await load.saturate(SLICE_MS);
    return cpuBetween(before, cpuOf(pid)) / 1e3 / requests;
  });
}

async function underLoad<T>(
  { scale, ask = (question) => question }: Case,
  use: (load: LoadConnections, running: RunningContender) => Promise<T>,
): Promise<T> {
  const running = gateways.get(scale);
  if (running === undefined) throw new Error('The gateway is not running.');
  const load = await LoadConnections.open(ask(running.question('2KB')), CONNECTIONS);
  try {
    return await use(load, running);
  } finally {
    await load.close();
  }
}

function print(costs: ReadonlyMap<Case, ReadonlyMap<number, number>>): void {
  const rows = Object.entries(GROUPS).flatMap(([group, cases]) => {
    const base = costs.get(cases[0] as Case) ?? new Map();
    return cases.map((each, index) => {
      const own = costs.get(each) ?? new Map();
      const ratio = spreadOf(ratios(own, base));
      const us = spreadOf([...own.values()]).median.toFixed(0);
      const percent = ((100 * ratio.margin) / ratio.median).toFixed(0);
      const noise = verdictOn(ratio) === 'noisy' ? '?' : '';
      const grows = ratio.median - ratio.margin > GROWS ? '>' : '';
      const figure = index === 0 ? '1' : `${ratio.median.toFixed(2)}±${percent}%${noise}`;
      return [index === 0 ? group : '', each.label, us, figure, grows];
    });
  });
  const config = {
    border: getBorderCharacters('void'),
    drawHorizontalLine: () => false,
    columnDefault: { paddingLeft: 0, paddingRight: 2 },
    columns: { 1: { alignment: 'right' }, 2: { alignment: 'right' } },
  } as const;
  console.log(table([['', '', 'us', 'ratio', ''], ...rows], config).replace(/ +$/gm, ''));
  console.log(`${rounds} rounds. >: more than ${GROWS}, beyond ±. ?: noise.`);
}

/** With digits in the last parameter. */
function withLength(question: Question, length: number): Question {
  return { ...question, path: question.path + '1'.repeat(Math.max(0, length - question.path.length)) };
}

/** Fields as clients send them: names and values of about 20 bytes, none of which the gateway knows. */
function withHeaders(question: Question, count: number): Question {
  const headers = Array.from({ length: count }, (_, at) => [
    `x-field-number-${at}`,
    `value ${at} of a client`,
  ]);
  return { ...question, headers: [...question.headers, ...headers.flat()] };
}
