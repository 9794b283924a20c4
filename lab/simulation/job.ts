import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

const job = z.strictObject({
  first: z.int(),
  count: z.int(),
  /** Name of a mutation; left out: the code as it is. */
  mutation: z.string().optional(),
  stopsAtViolation: z.boolean().default(false),
  /** True: with the trace of each schedule. */
  traces: z.boolean().default(false),
  /** With the flight records of each schedule whose seed is a multiple of this; 0: only of one that failed. */
  recordedEvery: z.int().default(0),
  /** True: a schedule that fails is made smaller first. */
  shrinks: z.boolean().default(false),
  /** A file with flight records, which are replayed in the place of seeds. */
  flight: z.string().optional(),
});

/** Seeds to run, one after the other. */
export type Job = z.output<typeof job>;

/** The result of one seed. */
export interface JobReport {
  readonly seed: number;
  readonly events: number;
  readonly requests: number;
  readonly violations: readonly { readonly invariant: string; readonly detail: string }[];
  readonly plan?: unknown;
  readonly trace?: readonly string[];
  /** The flight record of each gateway, of a schedule that failed, and by `recordedEvery`. */
  readonly flights?: readonly string[];
}

export function readJob(text: string): Job {
  return job.parse(JSON.parse(text));
}

const PROGRAM = fileURLToPath(new URL('program.ts', import.meta.url));

/**
 * A schedule takes seconds at most, also on a busy machine; after this time the code runs in circles, in milliseconds.
 */
const SILENCE_MS = 180_000;

/**
 * Runs a job in a process of its own. A schedule that does not end counts as failed, and ends the job.
 * @throws Error if the process fails
 */
export async function runJob(
  given: z.input<typeof job>,
  onReport: (report: JobReport) => void,
): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(job.parse(given))], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const errors: string[] = [];
  child.stderr.setEncoding('utf8').on('data', (text: string) => errors.push(text));
  const ended = once(child, 'close');
  let seed = given.first;
  let hangs = false;
  const watchdog = setTimeout(() => {
    hangs = child.kill('SIGKILL');
  }, SILENCE_MS);
  for await (const line of createInterface({ input: child.stdout })) {
    const report: JobReport = JSON.parse(line);
    seed = report.seed + 1;
    watchdog.refresh();
    onReport(report);
  }
  const [code] = await ended;
  clearTimeout(watchdog);
  const violations = [{ invariant: 'every schedule ends', detail: `not within ${SILENCE_MS} ms` }];
  if (hangs) onReport({ seed, events: 0, requests: 0, violations });
  else if (code !== 0) throw new Error(`the simulation ended with ${code}: ${errors.join('').slice(-2_000)}`);
}
