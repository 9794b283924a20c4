import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { repository } from '../../test/support/repository.ts';
import { Coverage, type EnteredFunction } from './coverage.ts';
import { EntryOrder } from './entry-order.ts';
import { send, type Walk, walks } from './walks.ts';

/*
 * How much code a GET passes on its way through the gateway. `npm run walk` prints a line for each state in which the
 * gateway can be; with a name of `walks.ts`, also each function in the order in which they are entered first; with
 * `--write`, the table in CONTRIBUTING.md follows.
 *
 * The program runs in this thread without audit log and Redis, between a client and the simulator over TLS, which has a
 * thread of its own. Counted are the functions of `src/` that V8's precise coverage sees entered from the request to the
 * end of its response, and of what it began. Asynchronous frames are those of them that are declared `async`, each once.
 * Exchanges are the requests that the simulator got.
 */

interface Measured {
  readonly entered: readonly EnteredFunction[];
  readonly exchanges: number;
}

/** A timer may run during one of them: a walk has the functions that all of them enter. */
const ROUNDS = 3;
const PAGE = `${repository}/CONTRIBUTING.md`;
const TABLE = /(?<=<!-- walks[^>]*-->\n).*?(?=<!-- end of walks -->)/s;

/** The first round loads what is loaded on use, and does not count. */
async function measure(walk: Walk): Promise<Measured> {
  await send(walk, new Coverage());
  let common: ReadonlyMap<string, EnteredFunction> | undefined;
  const exchanges = new Set<number>();
  for (let round = 0; round < ROUNDS; round += 1) {
    const coverage = new Coverage();
    exchanges.add(await send(walk, coverage));
    const { entered } = coverage;
    common = common && new Map([...common].filter(([place]) => entered.has(place)));
    common ??= entered;
  }
  const [count = 0] = exchanges;
  if (exchanges.size > 1) throw new Error(`${walk.name}: ${[...exchanges].join(' or ')} exchanges`);
  return { entered: [...(common ?? new Map()).values()], exchanges: count };
}

/** Files, functions, asynchronous frames, exchanges. */
function figuresOf({ entered, exchanges }: Measured): number[] {
  const files = new Set(entered.map(({ file }) => file));
  return [files.size, entered.length, entered.filter(({ isAsync }) => isAsync).length, exchanges];
}

async function inOrder(walk: Walk, { entered }: Measured): Promise<string[]> {
  const observer = new EntryOrder(entered);
  await send(walk, observer);
  const order = await observer.order();
  return order.map(
    ({ file, start, name, isAsync }) => `${file}:${start.lineNumber + 1} ${isAsync ? 'async ' : ''}${name}`,
  );
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { write: { type: 'boolean', default: false } },
});
const unknown = positionals.filter((name) => walks.every((walk) => walk.name !== name));
if (unknown.length > 0) {
  throw new Error(`no walk ${unknown.join(', ')}; there are ${walks.map(({ name }) => name).join(', ')}`);
}
const rows: string[] = [];
for (const walk of walks) {
  if (positionals.length > 0 && !positionals.includes(walk.name)) continue;
  const measured = await measure(walk);
  const figures = figuresOf(measured);
  const [files, functions, frames, exchanges] = figures;
  print(
    `${walk.title}: ${files} files, ${functions} functions, ${frames} asynchronous frames, ${exchanges} exchanges`,
  );
  rows.push(`| ${walk.title} | ${figures.join(' | ')} |\n`);
  if (positionals.length > 0) for (const line of await inOrder(walk, measured)) print(`  ${line}`);
}
if (values.write && rows.length === walks.length) {
  const head =
    '| A GET with | Files | Functions | Asynchronous frames | Exchanges |\n|---|---|---|---|---|\n';
  writeFileSync(PAGE, readFileSync(PAGE, 'utf8').replace(TABLE, `\n${head}${rows.join('')}\n`));
}
