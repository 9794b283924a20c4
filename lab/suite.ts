import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { repository } from '../test/support/repository.ts';
import type { Finding, LabOptions, LabPart, PartReport } from './part.ts';

const RUNS = 10;
/**
 * What takes the machine from the tests: as many busy processes as there are processors here, memory, disk, and
 * switches.
 */
const STRESS = [
  '--cpu',
  '2',
  '--vm',
  '1',
  '--vm-bytes',
  '256M',
  '--hdd',
  '1',
  '--hdd-bytes',
  '64M',
  '--switch',
  '1',
];

export const suite: LabPart = {
  name: 'suite',
  description:
    'The tests in random order beside stress-ng: none fails that does not fail always. Only if asked for: a run takes half an hour.',
  isLong: true,
  run,
};

/** The part of jest's report (`--json`) that is read. */
const Report = z.object({
  numPassedTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      message: z.string(),
      assertionResults: z.array(
        z.object({ fullName: z.string(), status: z.string(), failureMessages: z.array(z.string()) }),
      ),
    }),
  ),
});

interface Run {
  readonly passed: number;
  readonly failed: readonly string[];
  readonly minutes: number;
  /** Tests that ran again because the machine stood still. */
  readonly repeated: number;
}

async function run({ seed, runs = RUNS, limitMs, progress }: LabOptions): Promise<PartReport> {
  const begun = performance.now();
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'suite-'));
  stack.defer(() => rm(folder, { recursive: true }));
  stack.defer(startStress(folder));
  const done: Run[] = [];
  const findings: Finding[] = [];
  for (let at = 0; at < runs && (at === 0 || performance.now() - begun < limitMs); at += 1) {
    const own = seed + at;
    const result = await runSuite(own, join(folder, `${own}.json`), (files) =>
      progress(`run ${at + 1} of ${runs}: ${files} files, ${findings.length} findings`),
    );
    const replay = `npm run lab -- suite --first ${own} --runs 1`;
    findings.push(...result.failed.map((what) => ({ seed: own, what, replay })));
    done.push(result);
  }
  return {
    figures: {
      runs: done.length,
      tests: done.reduce((sum, { passed, failed }) => sum + passed + failed.length, 0),
    },
    tables: [
      {
        title: 'Runs',
        head: ['seed', 'passed', 'failed', 'ran again after a standstill', 'minutes'],
        rows: done.map(({ passed, failed, repeated, minutes }, at) =>
          [seed + at, passed, failed.length, repeated, minutes.toFixed(1)].map(String),
        ),
      },
    ],
    findings,
  };
}

/** Returns what ends the load. */
function startStress(folder: string): () => Promise<void> {
  const stress = spawn('stress-ng', [...STRESS, '--temp-path', folder], { stdio: 'ignore' });
  const ended = once(stress, 'exit');
  return async () => {
    stress.kill();
    await ended;
  };
}

/** Runs all tests once. `onFile` is told the number of files that are done. */
async function runSuite(seed: number, file: string, onFile: (done: number) => void): Promise<Run> {
  const begun = performance.now();
  const order = ['--randomize', '--seed', String(seed)];
  const args = ['run', '-s', 'jest', '--', ...order, '--json', '--outputFile', file];
  const jest = spawn('npm', args, { cwd: repository, stdio: ['ignore', 'pipe', 'pipe'] });
  let [files, repeated] = [0, 0];
  const read = (stream: NonNullable<ChildProcess['stdout']>): void => {
    createInterface(stream).on('line', (line) => {
      if (line.includes('the machine stood still')) repeated += 1;
      if (!/^(?:PASS|FAIL) /.test(line)) return;
      files += 1;
      onFile(files);
    });
  };
  read(jest.stdout);
  read(jest.stderr);
  await once(jest, 'close');
  const { numPassedTests, testResults } = Report.parse(JSON.parse(await readFile(file, 'utf8')));
  return {
    passed: numPassedTests,
    failed: testResults.filter(({ status }) => status === 'failed').flatMap(failuresOf),
    repeated,
    minutes: (performance.now() - begun) / 60_000,
  };
}

type FileResult = z.infer<typeof Report>['testResults'][number];

function failuresOf({ name, message, assertionResults }: FileResult): string[] {
  const path = relative(repository, name);
  const failed = assertionResults.filter(({ status }) => status === 'failed');
  if (failed.length === 0) return [`${path}: ${message.slice(0, 500)}`];
  return failed.map(
    ({ fullName, failureMessages: [why = ''] }) => `${path} › ${fullName}: ${why.slice(0, 500)}`,
  );
}
