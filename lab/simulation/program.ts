import { readFile } from 'node:fs/promises';
import { mutate, simulateRedis, simulateUpstream } from './hooks.ts';
import { type Job, type JobReport, readJob } from './job.ts';
import { MUTATIONS } from './mutations.ts';
import { installVirtualGlobals } from './virtual-globals.ts';

/*
 * Runs simulations in a process of its own, since virtual time replaces clock, timers and randomness of the whole
 * process, and a mutation the code. The argument is a job; each line of the output is a report.
 */

const job = readJob(process.argv[2] ?? '');
if (job.mutation !== undefined) {
  const mutation = MUTATIONS.find(({ name }) => name === job.mutation);
  if (mutation === undefined) throw new RangeError(`no mutation ${job.mutation}`);
  mutate(mutation);
}
simulateRedis();
simulateUpstream();
installVirtualGlobals();
// These modules must be loaded after the hooks are in place.
const { planOf } = await import('./plan.ts');
const { runPlan } = await import('./run.ts');
const { replay } = await import('./shrink.ts');
const { readFlights } = await import('./flight.ts');
const { replayFlights } = await import('./flight-replay.ts');

function report(line: JobReport): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function runSeeds({ first, count, stopsAtViolation, recordedEvery }: Job): Promise<void> {
  for (let seed = first; seed < first + count; seed += 1) {
    const { violations, events, requests, flights } = await runPlan(planOf(seed), { trace: false });
    const isRecorded = violations.length > 0 || (recordedEvery > 0 && seed % recordedEvery === 0);
    report({ seed, events, requests, violations, ...(isRecorded && { flights: flights() }) });
    if (violations.length > 0 && stopsAtViolation) return;
  }
}

async function replaySeeds({ first, count, shrinks }: Job): Promise<void> {
  for (let seed = first; seed < first + count; seed += 1) {
    const { plan, result } = await replay(planOf(seed), shrinks);
    const { violations, events, requests, trace } = result;
    report({ seed, events, requests, violations, plan, trace });
  }
}

async function replayFile(file: string, { first: seed, traces }: Job): Promise<void> {
  const flights = readFlights(await readFile(file, 'utf8'));
  report({ seed, ...(await replayFlights(flights, { trace: traces })) });
}

if (job.flight !== undefined) await replayFile(job.flight, job);
else await (job.traces ? replaySeeds(job) : runSeeds(job));
