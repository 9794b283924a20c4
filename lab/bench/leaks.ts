import { getBorderCharacters, table } from 'table';
import type { Held } from '../../test/full/held-resources.ts';
import { COUNTS, startLeakScene } from '../../test/full/leak-scene.ts';

/**
 * Whether a gateway leaks: a mix of requests of which 5 % are aborted by their clients, 5 % meet a reset, 5 % a timeout
 * and 5 % a stale nonce. What the gateway holds after the first tenth, and at the end, when its connections are closed.
 *
 *     node lab/bench/leaks.ts [requests] [seed]
 *
 * Exits with 1 if a count differs, or the heap has grown by more than HEAP_GROWTH.
 */
const requests = Number(process.argv[2] ?? 300_000);
const seed = Number(process.argv[3] ?? 1);
const WARM_UP = 0.1;
/** Less than 8 bytes for each of 270,000 requests. Code that V8 compiles late, and its caches, take some hundred KiB. */
const HEAP_GROWTH = 2 * 2 ** 20;
/** How long the counts may take to be as before: a health check may be under way. */
const SETTLE_MS = 60_000;
const SHOWN_EVERY_MS = 5_000;

const scene = await startLeakScene(seed);
try {
  console.log(`${requests} requests, seed ${seed}, Node ${process.version}`);
  const begun = performance.now();
  const start = await scene.settled();
  await run(Math.round(WARM_UP * requests));
  const before = await scene.settled();
  await run(requests - scene.mix.done);
  const after = await scene.settledAs(before, SETTLE_MS);
  print({ start, before, after });
  for (const [outcome, count] of scene.mix.seen) console.log(`  ${outcome.padEnd(40)} ${count}`);
  console.log(`  ${'attempts with a stale nonce'.padEnd(40)} ${await scene.stale()}`);
  console.log(`${((performance.now() - begun) / 1000).toFixed(0)} s`);
  const leaks = [
    ...COUNTS.filter((name) => after[name] !== before[name]),
    ...(after.heap - before.heap > HEAP_GROWTH ? ['heap'] : []),
  ];
  if (scene.mix.unexpected > 0) console.log(`${scene.mix.unexpected} outcomes are not explained by a fault.`);
  console.log(leaks.length === 0 ? 'No leak.' : `Not as before: ${leaks.join(', ')}.`);
  process.exitCode = leaks.length > 0 || scene.mix.unexpected > 0 ? 1 : 0;
} finally {
  await scene[Symbol.asyncDispose]();
}

async function run(count: number): Promise<void> {
  const show = (): boolean => process.stderr.write(`${scene.mix.done} of ${requests} requests\n`);
  const timer = setInterval(show, SHOWN_EVERY_MS);
  await scene.mix.run(count);
  clearInterval(timer);
  show();
}

function print(columns: Readonly<Record<'start' | 'before' | 'after', Held>>): void {
  const { start, before, after } = columns;
  const row = (label: string, figure: (held: Held) => string): string[] => [
    label,
    ...[start, before, after].map(figure),
  ];
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(2)} MiB`;
  const rows = [
    ['', 'start', 'after a tenth', 'end'],
    ...COUNTS.map((name) => row(name, (held) => `${held[name]}`)),
    ...(['heap', 'external'] as const).map((name) => row(name, (held) => mib(held[name]))),
  ];
  const config = {
    border: getBorderCharacters('void'),
    drawHorizontalLine: () => false,
    columnDefault: { alignment: 'right', paddingLeft: 0, paddingRight: 2 },
    columns: { 0: { alignment: 'left' } },
  } as const;
  console.log(table(rows, config).replace(/ +$/gm, ''));
}
