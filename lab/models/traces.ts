import type { FlightRecord } from '../simulation/flight.ts';
import { spin } from './spin.ts';

/*
 * Checks that traces of gateways are behaviours of a model: `trace.pml` has the model show the same events, and Spin
 * looks for a run that does. What is allowed stands in the model only.
 */

export interface TraceEvent<Kind extends string = string> {
  readonly kind: Kind;
  /** Its subject, as a number: a request, or a version. */
  readonly subject: number;
  /** 0: the event has none. */
  readonly value: number;
}

/** The events of one thing that a model knows. */
export interface Trace<Kind extends string = string> {
  readonly name: string;
  /** A record that shows it. */
  readonly record: FlightRecord;
  /** Of each process that had to do with it, in their order. */
  readonly processes: readonly (readonly TraceEvent<Kind>[])[];
}

/** A trace that is no behaviour of its model. */
export interface RefusedTrace extends Pick<Trace, 'name' | 'record'> {
  /** Events that some run of the model shows. */
  readonly shown: number;
  /** All of them, a line for each process. */
  readonly events: string;
}

export interface TraceReport {
  /** Traces that were checked, and their events. */
  readonly traces: number;
  readonly events: number;
  /** Traces that the model does not know. */
  readonly skipped: number;
  readonly refused: readonly RefusedTrace[];
}

/** A model that shows traces. */
export interface TraceModel<Kind extends string> {
  /** Its file. */
  readonly name: string;
  /** Kinds of events, by their names in the model. */
  readonly kinds: readonly Kind[];
  /** Macros for traces that are checked together, and bytes that they add to a state. */
  readonly sizeOf: (traces: readonly Trace<Kind>[]) => {
    readonly macros: Readonly<Record<string, number>>;
    readonly bytes: number;
  };
}

/** Events of the traces of one run of Spin. */
const EVENTS_AT_ONCE = 20_000;

/** Checks traces. @throws Error if Spin fails */
export async function checkTraces<Kind extends string>(
  model: TraceModel<Kind>,
  { traces, skipped }: { readonly traces: readonly Trace<Kind>[]; readonly skipped: number },
): Promise<TraceReport> {
  const refused: RefusedTrace[] = [];
  for (const batch of batchesOf(traces)) refused.push(...(await refusedOf(model, batch)));
  const events = traces.reduce((sum, trace) => sum + lengthOf(trace), 0);
  return { traces: traces.length, events, skipped, refused };
}

/** Traces of like size together, since the longest decides the size of a state. */
function batchesOf<Kind extends string>(traces: readonly Trace<Kind>[]): Trace<Kind>[][] {
  const batches: Trace<Kind>[][] = [];
  let room = 0;
  for (const trace of [...traces].sort((a, b) => lengthOf(b) - lengthOf(a))) {
    const length = lengthOf(trace);
    if (length > room) {
      batches.push([]);
      room = EVENTS_AT_ONCE;
    }
    batches.at(-1)?.push(trace);
    room -= length;
  }
  return batches;
}

async function refusedOf<Kind extends string>(
  { name, kinds, sizeOf }: TraceModel<Kind>,
  traces: readonly Trace<Kind>[],
): Promise<RefusedTrace[]> {
  const processes = Math.max(...traces.map((trace) => trace.processes.length));
  const { macros, bytes } = sizeOf(traces);
  const numbers = Object.fromEntries(kinds.map((kind, number) => [kind, number + 1]));
  const printed = await spin(name, {
    macros: { TRACE: 1, TRACES: traces.length, PROCESSES: processes, ...numbers, ...macros },
    compiler: ['-DNOREDUCE', '-DCOLLAPSE', `-DVECTORSZ=${8_192 + bytes}`],
    // A trace that is not shown ends anywhere.
    checker: ['-E'],
    files: { 'events.h': headerOf(traces, processes, numbers) },
  });
  if (!printed.includes('errors: 0')) throw new Error(`a run of the model fails: ${printed.slice(-2_000)}`);
  const shown = new Map<number, number>();
  for (const [, number, count] of printed.matchAll(/^trace (\d+) shows (\d+)$/gm))
    shown.set(Number(number), Number(count));
  return traces.flatMap((trace, number) => {
    const count = shown.get(number) ?? 0;
    const { name: of, record } = trace;
    return count === lengthOf(trace) ? [] : [{ name: of, record, shown: count, events: textOf(trace) }];
  });
}

function lengthOf({ processes }: Trace): number {
  return processes.reduce((sum, events) => sum + events.length, 0);
}

/** The traces in C. */
function headerOf(
  traces: readonly Trace[],
  processes: number,
  numbers: Readonly<Record<string, number>>,
): string {
  const lines = ['struct event { unsigned char kind; unsigned char subject; int value; };'];
  const names = traces.map((trace, number) =>
    Array.from({ length: processes }, (_, at) => {
      const events = (trace.processes[at] ?? []).map(
        ({ kind, subject, value }) => `{${numbers[kind]},${subject},${value}},`,
      );
      lines.push(`static const struct event events_${number}_${at}[] = {${events.join('')}{0,0,0}};`);
      return `events_${number}_${at}`;
    }),
  );
  const rows = names.map((row) => `{${row.join(',')}}`);
  lines.push(`static const struct event *const events[][${processes}] = {${rows.join(',')}};`);
  return `${lines.join('\n')}\n`;
}

function textOf({ processes }: Trace): string {
  return processes
    .map((events) =>
      events
        .map(({ kind, subject, value }) => `${kind} ${subject}${value === 0 ? '' : `/${value}`}`)
        .join(', '),
    )
    .join('\n');
}
