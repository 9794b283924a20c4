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
  /** True: a schedule that fails is made smaller first. */
  shrinks: z.boolean().default(false),
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
}

export function readJob(text: string): Job {
  return job.parse(JSON.parse(text));
}

const PROGRAM = fileURLToPath(new URL('program.ts', import.meta.url));

/**
 * Runs a job in a process of its own.
 * @throws Error if the process fails
 */
export async function runJob(
  given: z.input<typeof job>,
  onReport: (report: JobReport) => void,
  signal?: AbortSignal,
): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(job.parse(given))], {
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(signal !== undefined && { signal }),
  });
  const errors: string[] = [];
  child.stderr.setEncoding('utf8').on('data', (text: string) => errors.push(text));
  const ended = once(child, 'close');
  for await (const line of createInterface({ input: child.stdout })) onReport(JSON.parse(line));
  const [code] = await ended;
  if (code !== 0) throw new Error(`the simulation ended with ${code}: ${errors.join('').slice(-2_000)}`);
}
