import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { getBorderCharacters, table } from 'table';
import { divideCores } from '../../test/bench/compare/cores.ts';
import { QUERY } from '../../test/bench/compare/documents.ts';
import { LoadConnections } from '../../test/bench/compare/load.ts';
import { quantile, seededRandom, shuffled, spreadOf } from '../../test/bench/compare/statistics.ts';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';
import {
  type FaultyUpstreams,
  faultyDeployments,
  HEALTHY,
  LIGHT,
  UPSTREAM_FAULTS,
  type UpstreamFault,
} from '../../test/full/faulty-upstreams.ts';
import { startGatewayProcess } from '../../test/support/gateway-process.ts';
import { startArrivals } from '../../test/support/load.ts';

/**
 * p50 and p99 of a healthy deployment while another one of the same process is faulty: a ratio to the slices right before
 * and after, in which the load of the other one goes to a healthy upstream, too.
 *
 *     node lab/bench/isolation.ts [rounds] [name of a fault]
 *
 * A request of the measured deployment gets its whole document, or the run ends.
 */
const rounds = Number(process.argv[2] ?? 8);
const only = process.argv[3];
const CONNECTIONS = 8;
/**
 * Share of the requests per second that the connections can send, and the most of them: the clients are late less
 * often.
 */
const SHARE = 1 / 3;
const MOST_PER_SECOND = 500;
/** A slice with fewer requests at which the clients were not late is repeated. */
const LEAST_REQUESTS = 200;
const WARM_UP = { steps: 20, ms: 400 };
/** Until the load of a slice is there. */
const LEAD_MS = 700;
const SLICE_MS = 1_500;

type Slice = Readonly<Record<'p50' | 'p99', number>>;
interface Paired {
  readonly ratio: Slice;
  /** The slice after to the slice before: the noise of the machine. */
  readonly noise: Slice;
}

const random = seededRandom(1);
const pinned = await divideCores();
const measured = await startBenchUpstream();
const worker = new Worker(new URL('isolation-upstreams.ts', import.meta.url));
const [faulty] = (await once(worker, 'message')) as [Pick<FaultyUpstreams, 'ca' | 'origins'>];
const gateway = await startGatewayProcess(
  {
    measured: {
      ...measured,
      settings: { match: { pathPrefix: '/digest/' } },
    },
    ...faultyDeployments(faulty),
  },
  { listen: { port: 0, limits: { connectionsPerAddress: 10_000 } } },
  { runner: pinned === undefined ? [] : ['taskset', '-c', pinned] },
);
const question = { origin: gateway.origin, path: `/digest/2KB${QUERY}`, length: 2048, headers: [] };
const load = await LoadConnections.open(question, CONNECTIONS);
try {
  for (const name of Object.keys(faulty.origins))
    await (await fetch(`${gateway.origin}/${name}/echo`)).text();
  worker.postMessage('begin faults');
  await once(worker, 'message');
  const perSecond = Math.min(MOST_PER_SECOND, SHARE * (await capacity()));
  console.log(`${perSecond.toFixed(0)} requests per second on ${CONNECTIONS} connections, ${rounds} rounds`);
  await measure(perSecond);
} finally {
  await load.close();
  await gateway.close();
  await worker.terminate();
  await measured.close();
}

/** Requests per second that the connections can send, after a warm-up: in the best of its steps nothing else ran. */
async function capacity(): Promise<number> {
  let most = 0;
  for (let step = 0; step < WARM_UP.steps; step += 1) most = Math.max(most, await load.saturate(WARM_UP.ms));
  return (most * 1000) / WARM_UP.ms;
}

async function measure(perSecond: number): Promise<void> {
  const names = Object.entries<UpstreamFault>(UPSTREAM_FAULTS).filter(
    ([name]) => only === undefined || only === name,
  );
  const paired = new Map<string, Paired[]>(names.map(([name]) => [name, []]));
  const seen = new Map<string, Record<string, number>>();
  let last: { readonly perSecond: number; readonly slice: Slice } | undefined;
  for (let round = 1; round <= rounds; round += 1) {
    for (const [name, fault] of shuffled(names, random)) {
      const healthy = { ...fault, target: LIGHT.target };
      const isSameLoad = last?.perSecond === fault.perSecond;
      const before = last !== undefined && isSameLoad ? last.slice : await slice(HEALTHY, healthy);
      const during = await slice(name, fault);
      const after = await slice(HEALTHY, healthy);
      paired.get(name)?.push({
        ratio: {
          p50: (2 * during.p50) / (before.p50 + after.p50),
          p99: (2 * during.p99) / (before.p99 + after.p99),
        },
        noise: { p50: after.p50 / before.p50, p99: after.p99 / before.p99 },
      });
      last = { perSecond: fault.perSecond, slice: after };
    }
    process.stderr.write(`round ${round} of ${rounds}\n`);
  }
  print(paired, seen);

  async function slice(name: string, fault: UpstreamFault): Promise<Slice> {
    const { perSecond: ofFaulty, underWay, target } = fault;
    const url = `${gateway.origin}/${name}${target}`;
    const arrivals = startArrivals(ofFaulty, () => ask(url), underWay);
    await delay(LEAD_MS);
    const { latencies } = await load.arrive(perSecond, SLICE_MS, random);
    const { outcomes } = await arrivals.stop();
    const all = seen.get(name) ?? {};
    for (const [outcome, count] of Object.entries(outcomes)) all[outcome] = (all[outcome] ?? 0) + count;
    seen.set(name, all);
    if (latencies.length < LEAST_REQUESTS) return slice(name, fault);
    const sorted = latencies.toSorted((one, other) => one - other);
    return { p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99) };
  }
}

async function ask(url: string): Promise<number> {
  const response = await fetch(url);
  for await (const _ of response.body ?? []);
  return response.status;
}

function print(
  paired: ReadonlyMap<string, readonly Paired[]>,
  seen: ReadonlyMap<string, Record<string, number>>,
): void {
  const figure = (values: readonly number[]): string => {
    const { median, margin } = spreadOf(values);
    return `${median.toFixed(2)}±${((100 * margin) / median).toFixed(0)}%`;
  };
  const rows = Array.from(paired, ([name, all]) => [
    name,
    ...(['p50', 'p99'] as const).flatMap((at) => [
      figure(all.map(({ ratio }) => ratio[at])),
      figure(all.map(({ noise }) => noise[at])),
    ]),
    Object.entries(seen.get(name) ?? {})
      .map(([outcome, count]) => `${count} x ${outcome}`)
      .join(', '),
  ]);
  const config = {
    border: getBorderCharacters('void'),
    drawHorizontalLine: () => false,
    columnDefault: { paddingLeft: 0, paddingRight: 2 },
  } as const;
  console.log(
    table([['', 'p50', 'noise', 'p99', 'noise', 'clients of it saw'], ...rows], config).replace(/ +$/gm, ''),
  );
  console.log(`sent once more: ${load.repeated}`);
}
