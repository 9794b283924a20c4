import { mkdir, writeFile } from 'node:fs/promises';
import { cpus, loadavg, release } from 'node:os';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { repository } from '../../support/repository.ts';
import {
  BEFORE,
  CONTENDERS,
  type Contender,
  gatewaysBefore,
  type RunningContender,
  startContender,
} from './contenders.ts';
import { divideCores } from './cores.ts';
import { type Comparison, compare, type Figures } from './figures.ts';
import { cellsOf, type Measurements, measure, type Plan } from './measure.ts';
import { plot } from './plot.ts';
import { type Entrant, report } from './report.ts';
import { seededRandom } from './statistics.ts';
import { startBenchUpstream } from './upstream.ts';

/** Compares the gateway with its peers: see README.md beside this folder. */

interface Options {
  readonly quick: boolean;
  readonly only?: readonly string[];
  readonly before?: string;
  readonly reference?: string;
  readonly restart: boolean;
  readonly rounds?: number;
  readonly seed: number;
  readonly out: string;
}

const FULL: Plan = {
  cells: [
    { document: '2KB', connections: 32 },
    { document: '256KB', connections: 32 },
  ],
  focus: {
    contenders: [
      ...['gateway', 'gateway-no-audit', 'go-reverse-proxy', 'express-http-proxy'],
      ...['nginx', 'node-undici-held', 'go-plain'],
    ],
    cells: [
      { document: '2KB', connections: 1 },
      { document: '2KB', connections: 256 },
      { document: '256KB', connections: 1 },
      { document: '256KB', connections: 256 },
    ],
  },
  rounds: { fewest: 5, most: 15 },
  latencyRounds: 5,
  crowd: 1000,
  ms: { warmUp: 20_000, slice: 250, latency: 600, crowd: 400, total: 288_000 },
};

const QUICK: Plan = {
  ...FULL,
  focus: { ...FULL.focus, cells: [{ document: '2KB', connections: 1 }] },
  rounds: { fewest: 3, most: 3 },
  latencyRounds: 3,
  crowd: 256,
  ms: { warmUp: 2000, slice: 150, latency: 250, crowd: 150, total: 60_000 },
};

/** Ratios are to the first of these that is measured. */
const REFERENCES = ['before', 'go-reverse-proxy', 'express-http-proxy'];
/** Ratios of the main kind of load are to this one, too. */
const PLAIN = 'go-plain';
/** Load average before the run from which its figures are not worth much. */
const BUSY_LOAD = 1;

await new Command('bench')
  .description('Compares CPU time per request, latency and memory of the gateway with other proxies.')
  .option('--quick', 'about a minute instead of five: fewer kinds of load, shorter slices', false)
  .option('--only <names>', 'contenders to measure, with commas between', knownNames)
  .option(
    '--before <checkout>',
    'measure the gateway of another checkout, too, as before and before-no-audit',
    (folder: string) => resolve(folder),
  )
  .option(
    '--reference <name>',
    `the contender that others are compared with (default: the first that is measured of ${REFERENCES.join(', ')})`,
    knownName,
  )
  .option('--restart', 'new processes for each round; takes longer', false)
  .option('--rounds <number>', 'how many, instead of as many as five minutes allow', positiveInteger)
  .option('--seed <number>', 'of the order of slices', positiveInteger, Date.now() % 1_000_000)
  .option('--out <folder>', 'where results.json and plot.svg go', join(repository, 'bench-results'))
  .addHelpText('after', `\nContenders: ${CONTENDERS.map(({ name }) => name).join(', ')}`)
  .action(run)
  .parseAsync();

async function run(options: Options, command: Command): Promise<void> {
  const begun = performance.now();
  const entrants = await entrantsFor(options);
  const installed = entrants.filter(({ version }) => version !== undefined);
  const reference = referenceAmong(installed, options.reference);
  if (reference === undefined)
    command.error('error: the reference is not installed, or not among those to measure');
  const plan = planFor(options, reference);
  const [loadBefore = 0] = loadavg();
  if (loadBefore > BUSY_LOAD) progress(`the load is ${loadBefore.toFixed(1)} already: expect noise`);
  const { measurements, pinned } = await measureAll(
    plan,
    installed.map(({ contender }) => contender),
    options,
    begun,
  );
  const comparison = compare(measurements, cellsOf(plan), reference);
  const isPlainMeasured = installed.some(({ contender }) => contender.name === PLAIN);
  const toPlain = isPlainMeasured ? compare(measurements, cellsOf(plan), PLAIN) : undefined;
  console.log(`${describeMachine(pinned)}\n`);
  console.log(report(plan, entrants, measurements, comparison, toPlain));
  const folder = resolve(options.out);
  await mkdir(folder, { recursive: true });
  await writeFile(
    join(folder, 'plot.svg'),
    plot(
      comparison,
      installed.map(({ contender }) => contender.name),
    ),
  );
  const machine = { description: describeMachine(pinned), kernel: release(), loadBefore };
  const contenders = entrants.map(({ contender, version }) => ({ ...contender, version }));
  const results = { at: new Date(), machine, options, plan, contenders, ...asJson(comparison), measurements };
  await writeFile(join(folder, 'results.json'), `${JSON.stringify(results, null, 1)}\n`);
  const seconds = ((performance.now() - begun) / 1000).toFixed(0);
  console.log(`seed ${options.seed}, ${seconds} s; results.json and plot.svg are in ${folder}`);
}

async function entrantsFor({ only, before }: Options): Promise<Entrant[]> {
  const chosen = CONTENDERS.filter(({ name, onRequest }) =>
    only === undefined ? onRequest !== true : only.includes(name),
  );
  if (before !== undefined) chosen.push(...gatewaysBefore(before));
  return Promise.all(chosen.map(async (contender) => ({ contender, version: await contender.version() })));
}

function referenceAmong(installed: readonly Entrant[], wanted: string | undefined): string | undefined {
  const names = installed.map(({ contender }) => contender.name);
  const candidates = wanted === undefined ? [...REFERENCES, ...names] : [wanted];
  return candidates.find((name) => names.includes(name));
}

function planFor({ quick, rounds, only, before }: Options, reference: string): Plan {
  const plan = quick ? QUICK : FULL;
  const contenders = only ?? [...plan.focus.contenders, reference];
  const earlier = before === undefined ? [] : BEFORE;
  return {
    ...plan,
    focus: { ...plan.focus, contenders: [...contenders, ...earlier] },
    ...(rounds !== undefined && { rounds: { fewest: rounds, most: rounds } }),
  };
}

/** Starts upstream and contenders, measures, and ends them, whatever happens. */
async function measureAll(
  plan: Plan,
  contenders: readonly Contender[],
  { seed, restart }: Options,
  begun: number,
): Promise<{ measurements: Measurements; pinned: string | undefined }> {
  const pinned = await divideCores();
  const upstream = await startBenchUpstream();
  const running: RunningContender[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(running.splice(0).map((each) => each.close()));
  };
  const start = async (): Promise<RunningContender[]> => {
    await stop();
    for (const contender of contenders) {
      progress(`starting ${contender.name}`);
      running.push(await startContender(contender, upstream, pinned));
    }
    return running;
  };
  try {
    const measurements = await measure(plan, await start(), {
      random: seededRandom(seed),
      deadline: begun + plan.ms.total,
      restart: restart ? start : undefined,
      progress,
    });
    return { measurements, pinned };
  } finally {
    await stop();
    await upstream.close();
  }
}

function describeMachine(pinned: string | undefined): string {
  const place = pinned === undefined ? 'all on one core' : `contenders on core ${pinned}`;
  return `${cpus()[0]?.model}, ${cpus().length} cores, ${place}`;
}

function asJson({ reference, cpu, p50, p99 }: Comparison): object {
  const plain = (figures: Figures) => Object.fromEntries(figures);
  return {
    reference,
    cpuUs: cpu.map((cell) => ({ ...cell, figures: plain(cell.figures) })),
    p50Ms: plain(p50),
    p99Ms: plain(p99),
  };
}

function knownNames(text: string): string[] {
  return text.split(',').map(knownName);
}

function knownName(text: string): string {
  if (CONTENDERS.some(({ name }) => name === text)) return text;
  throw new InvalidArgumentError(`There is no contender ${text}.`);
}

function positiveInteger(text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new InvalidArgumentError('It has to be a whole number above 0.');
  return Number(text);
}

/** On stderr, so that stdout has the results only. */
function progress(text: string): void {
  process.stderr.write(`${text}\n`);
}
