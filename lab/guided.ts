import { MOST_KEPT_BYTES, readCorpus, writeCorpus } from './guided/corpus.ts';
import { type GuidedResult, runGuided } from './guided/run.ts';
import { type GuidedTarget, targets } from './guided/targets.ts';
import type { Finding, LabOptions, LabPart, PartReport } from './part.ts';
import type { Mutation } from './simulation/mutations.ts';

/** Each mutation has to be found within this time, in milliseconds. */
const MUTATION_MS = 60_000;

export const guided: LabPart = {
  name: 'guided',
  description:
    'Inputs of parsers, policy, configuration, audit log and stored values, guided by the code that they reach.',
  run: runAll,
};

async function runAll(options: LabOptions): Promise<PartReport> {
  const { seed, only, replays } = options;
  const chosen = targets.filter(({ name }) => only === undefined || name === only);
  const rows: string[][] = [];
  const findings: Finding[] = [];
  const mutations: string[][] = [];
  for (const target of chosen) {
    const begun = performance.now();
    const result = await runTarget(target, { ...options, limitMs: options.limitMs / chosen.length });
    rows.push(rowOf(target, result, performance.now() - begun));
    findings.push(...findingsOf(target, result, seed));
    if (replays) continue;
    for (const mutation of target.mutations) {
      const row = await findMutation(target, mutation, options);
      mutations.push(row.cells);
      findings.push(...row.missed);
    }
  }
  const tables = [
    {
      title: 'Targets',
      head: ['target', 'inputs', 'seconds', 'inputs that reached something new', 'counters reached', 'kept'],
      rows,
    },
    {
      title: 'Mutations, and how they were found',
      head: ['mutation', 'breaks', 'inputs', 'found by'],
      rows: mutations,
    },
  ];
  return { figures: { targets: chosen.length }, tables: replays ? tables.slice(0, 1) : tables, findings };
}

async function runTarget(
  target: GuidedTarget,
  options: LabOptions,
): Promise<GuidedResult & { readonly written: number }> {
  const { seed, limitMs, runs = Number.MAX_SAFE_INTEGER, progress, print } = options;
  const corpus = await readCorpus(target.name);
  const writes = process.env['CORPUS'] === 'write';
  const result = await runGuided(
    { target: target.name, seed, corpus, runs, limitMs, ...(writes && { mostKeptBytes: MOST_KEPT_BYTES }) },
    ({ executions, reached, counters, kept }) =>
      progress(
        `${target.name}: ${executions} inputs, ${reached} of ${counters} counters reached, ${kept} kept`,
      ),
  );
  const { failure, smallest } = result;
  if (failure !== undefined) print(`${target.name}: ${failure.what}\n${inputText(failure.input)}\n`);
  if (!writes) return { ...result, written: corpus.length };
  // After a finding nothing is chosen: its input joins those that are there.
  const written = failure === undefined ? smallest : [...corpus, failure.input];
  await writeCorpus(target.name, written);
  return { ...result, written: written.length };
}

function rowOf(
  { name }: GuidedTarget,
  { figures, written }: GuidedResult & { readonly written: number },
  ms: number,
): string[] {
  const { executions, kept, reached, counters } = figures;
  return [name, executions, Math.round(ms / 1000), kept, `${reached} of ${counters}`, written].map(String);
}

function findingsOf({ name }: GuidedTarget, { failure, figures }: GuidedResult, seed: number): Finding[] {
  if (failure === undefined) return [];
  const replay = `npm run lab -- guided --target ${name} --seed ${seed} --runs ${figures.executions}`;
  return [{ seed, what: `${name}: ${failure.what}; input ${inputText(failure.input)}`, replay }];
}

/** The form in which the corpus has it. */
function inputText(input: Buffer): string {
  return JSON.stringify(input.toString('latin1'));
}

async function findMutation(
  target: GuidedTarget,
  mutation: Mutation,
  { seed, progress }: LabOptions,
): Promise<{ readonly cells: string[]; readonly missed: readonly Finding[] }> {
  progress(`mutation ${mutation.name}`);
  const { failure, figures } = await runGuided({
    target: target.name,
    seed,
    corpus: await readCorpus(target.name),
    runs: Number.MAX_SAFE_INTEGER,
    limitMs: MUTATION_MS,
    mutation,
  });
  const { name, breaks } = mutation;
  const missed = {
    seed,
    what: `the mutation ${name} was not found`,
    replay: `npm run lab -- guided --target ${target.name}`,
  };
  return {
    cells: [name, breaks, String(figures.executions), failure?.what ?? 'NOT FOUND'],
    missed: failure === undefined ? [missed] : [],
  };
}
