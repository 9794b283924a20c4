import { execFileSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { repository } from '../test/support/repository.ts';
import { targets } from './guided/targets.ts';
import type { LabOptions } from './part.ts';
import { parts } from './parts.ts';
import { markdownOf, type NamedReport, type RunFacts } from './report.ts';

/** Between two lines of progress where there is no terminal, in milliseconds. */
const QUIET_MS = 10_000;

interface Choices {
  readonly seed: number | undefined;
  readonly first: number;
  readonly runs: number | undefined;
  readonly minutes: number;
  readonly processes: number;
  readonly target: string | undefined;
  readonly flight: string | undefined;
  readonly out: string;
}

function whole(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('a whole number');
  return Number(text);
}

function progressLine(): (text: string) => void {
  let last = Number.NEGATIVE_INFINITY;
  const { isTTY } = process.stderr;
  return (text) => {
    if (isTTY) {
      process.stderr.write(`\r\x1b[K${text}`);
    } else if (performance.now() - last > QUIET_MS) {
      last = performance.now();
      process.stderr.write(`${text}\n`);
    }
  };
}

/** Returns where and when this runs. */
function runFacts(): RunFacts {
  const commit = execFileSync('git', ['describe', '--always', '--dirty'], {
    cwd: repository,
    encoding: 'utf8',
  });
  return {
    date: new Date().toISOString().slice(0, 10),
    commit: commit.trim(),
    node: process.version,
    command: `npm run lab -- ${process.argv.slice(2).join(' ')}`,
  };
}

async function runLab(names: readonly string[], choices: Choices): Promise<void> {
  const { seed, first, runs, minutes, processes, target: only, flight, out } = choices;
  const facts = runFacts();
  const chosen = parts.filter(({ name, isLong }) =>
    names.length === 0 ? isLong !== true : names.includes(name),
  );
  const line = progressLine();
  const reports: NamedReport[] = [];
  for (const { name, description, run } of chosen) {
    const options: LabOptions = {
      seed: seed ?? first,
      replays: seed !== undefined,
      flight,
      limitMs: minutes * 60_000,
      runs,
      only,
      out,
      processes,
      progress: (text) => line(`${name}: ${text}`),
      print: (text) => void process.stdout.write(text),
    };
    const report: NamedReport = { name, description, ...(await run(options)) };
    reports.push(report);
    const text = markdownOf(report, facts);
    process.stdout.write(`\n${text}`);
    if (seed !== undefined || flight !== undefined) continue;
    await mkdir(out, { recursive: true });
    await writeFile(join(out, `${name}.md`), text);
    await writeFile(join(out, `${name}.json`), `${JSON.stringify({ ...facts, ...report }, undefined, 2)}\n`);
  }
  if (reports.some(({ findings }) => findings.length > 0)) process.exitCode = 1;
}

await new Command('lab')
  .description('Looks for defects by running the program under faults. ')
  .addArgument(
    new Argument('[parts...]', 'parts to run; all but suite if left out').choices(
      parts.map(({ name }) => name),
    ),
  )
  .option('--seed <number>', 'replay this seed and print what happens', whole)
  .option('--flight <file>', 'replay flight records of gateways in the simulation')
  .option('--first <number>', 'the first seed', whole, 1)
  .option('--runs <number>', 'the most runs of each part', whole)
  .option('--minutes <number>', 'about how long each part takes', whole, 4)
  .addOption(
    new Option('--target <name>', 'the only target of guided').choices(targets.map(({ name }) => name)),
  )
  .option('--out <folder>', 'where PART.md and PART.json go', join(repository, 'lab-report'))
  .option('--processes <number>', 'processes at a time', whole, 1)
  .action(runLab)
  .parseAsync();
// Without it, Node.js takes minutes to free what 50,000 connections of `clients` leave.
process.exit();
