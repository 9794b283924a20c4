import type { Finding, LabOptions, PartReport } from '../part.ts';
import type { Mutation } from '../simulation/mutations.ts';

/** One run of a part over sockets. */
export interface WireJob {
  /** The first seed. */
  readonly first: number;
  /** The most seeds. */
  readonly seeds: number;
  /** It ends when so many messages have been sent. */
  readonly messages: number;
  /** It ends after this time, in milliseconds. */
  readonly limitMs: number;
  /** Left out: the code as it is. */
  readonly mutation?: Mutation | undefined;
  readonly stopsAtViolation?: boolean;
  readonly progress?: (text: string) => void;
  /** Is called with each violation as soon as it is seen: a run that breaks off has printed what it found. */
  readonly found?: (violation: WireViolation) => void;
  /** Is called with the bytes of each seed when it has ended. */
  readonly trace?: (text: string) => void;
}

export interface WireViolation {
  readonly seed: number;
  readonly what: string;
  /** The bytes, and how they are read. */
  readonly detail: string;
}

export interface WireReport {
  readonly seeds: number;
  readonly messages: number;
  readonly figures: Readonly<Record<string, number | string>>;
  readonly violations: readonly WireViolation[];
}

export interface WirePart {
  readonly name: string;
  /** Messages of a full run. */
  readonly messages: number;
  readonly mutations: readonly Mutation[];
  run(job: WireJob): Promise<WireReport>;
}

/** Each mutation has to be found within so many messages. */
const MESSAGES_FOR_MUTATION = 20_000;

/** Runs a part: one seed with its bytes, or many, then the mutations. */
export async function runWirePart(options: LabOptions, part: WirePart): Promise<PartReport> {
  const { seed, replays, runs = Number.MAX_SAFE_INTEGER, limitMs, progress, print } = options;
  const messages = runs === Number.MAX_SAFE_INTEGER ? part.messages : Number.MAX_SAFE_INTEGER;
  const once = { seeds: 1, trace: (text: string) => print(`${text}\n`) };
  const report = await part.run({
    first: seed,
    messages,
    limitMs,
    progress,
    found: ({ seed, what, detail }) => print(`seed ${seed}: ${what}\n${detail}\n\n`),
    ...(replays ? once : { seeds: runs }),
  });
  const findings = report.violations.map((each) => findingOf(each, part.name));
  const figures = { messages: report.messages, ...report.figures };
  if (replays) return { figures, tables: [], findings };
  const found = await findMutations(part, progress);
  const missed = found.filter(({ what }) => what === undefined);
  const table = {
    title: 'Mutations, and how they were found',
    head: ['mutation', 'breaks', 'messages', 'found by'],
    rows: found.map(({ name, breaks, tried, what }) => [name, breaks, String(tried), what ?? 'NOT FOUND']),
  };
  return {
    figures,
    tables: [table],
    findings: [
      ...findings,
      ...missed.map(({ name }) => ({
        seed,
        what: `the mutation ${name} was not found`,
        replay: `npm run lab -- ${part.name}`,
      })),
    ],
  };
}

function findingOf({ seed, what }: WireViolation, part: string): Finding {
  return { seed, what, replay: `npm run lab -- ${part} --seed ${seed}` };
}

interface FoundMutation {
  readonly name: string;
  readonly breaks: string;
  /** Messages until it was found. */
  readonly tried: number;
  /** The first violation; undefined: there was none. */
  readonly what: string | undefined;
}

async function findMutations(part: WirePart, progress: (text: string) => void): Promise<FoundMutation[]> {
  const results: FoundMutation[] = [];
  for (const mutation of part.mutations) {
    progress(`mutation ${mutation.name}`);
    const { messages, what } = await findMutation(part, mutation);
    results.push({ name: mutation.name, breaks: mutation.breaks, tried: messages, what });
  }
  return results;
}

/** Runs a mutation until something is wrong. */
export async function findMutation(
  part: Pick<WirePart, 'run'>,
  mutation: Mutation,
): Promise<{ readonly messages: number; readonly what: string | undefined }> {
  const { messages, violations } = await part.run({
    first: 1,
    seeds: Number.MAX_SAFE_INTEGER,
    messages: MESSAGES_FOR_MUTATION,
    limitMs: Number.POSITIVE_INFINITY,
    mutation,
    stopsAtViolation: true,
  });
  return { messages, what: violations[0]?.what.slice(0, 120) };
}
