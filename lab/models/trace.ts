import type { FlightRecord } from '../simulation/flight.ts';
import { spin } from './spin.ts';

/*
 * Checks that what flight records show is a behaviour of the model of nonces: `trace.pml` has the model show the same
 * events, nonce by nonce, and Spin looks for a run that does. What is allowed stands in the model only.
 */

/** Kinds of events, as in `trace.pml`. */
const KINDS = { begins: 1, accepted: 2, refused: 3, takes: 4 } as const;

/** What a process did with a nonce. */
interface TraceEvent {
  readonly kind: keyof typeof KINDS;
  /** One of the requests that the process has at a time with the nonce. */
  readonly request: number;
  /** 0: the event has none. */
  readonly nc: number;
}

/** What became of one nonce. */
interface Trace {
  readonly nonce: string;
  /** Of each process that used the nonce, in their order. */
  readonly processes: readonly (readonly TraceEvent[])[];
}

/** A nonce whose events are no behaviour of the model. */
export interface RefusedTrace {
  readonly nonce: string;
  /** Events that some run of the model shows. */
  readonly shown: number;
  /** All of them, a line for each process. */
  readonly events: string;
}

export interface TraceReport {
  /** Nonces that were checked, and their events. */
  readonly nonces: number;
  readonly events: number;
  /** Nonces that the model does not know: see `isModelled`. */
  readonly skipped: number;
  readonly refused: readonly RefusedTrace[];
}

type Exchange = Extract<FlightRecord['events'][number], { kind: 'exchange' }>;
type Taken = Extract<FlightRecord['events'][number], { kind: 'taken' }>;

/** Spin has at most 255 processes. */
const MAX_PROCESSES = 250;
/** Events of the traces of one run of Spin. */
const EVENTS_AT_ONCE = 20_000;
/** Of a longer trace the beginning is checked: every count makes a state larger. */
const MAX_COUNT = 2_000;
/** A process takes notice of a refusal so much later at most, in milliseconds: when it has read its body. */
const NOTICE_MS = 50;

/** Checks flight records of gateways that share a store. @throws Error if Spin fails */
export async function checkTraces(records: readonly FlightRecord[]): Promise<TraceReport> {
  const { traces, skipped } = tracesOf(records);
  const refused: RefusedTrace[] = [];
  for (const batch of batchesOf(traces)) refused.push(...(await refusedOf(batch)));
  const events = traces.reduce((sum, trace) => sum + sizeOf(trace), 0);
  return { nonces: traces.length, events, skipped, refused };
}

/** Traces of like size together, since the longest decides the size of a state. */
function batchesOf(traces: readonly Trace[]): Trace[][] {
  const batches: Trace[][] = [];
  let room = 0;
  for (const trace of [...traces].sort((a, b) => sizeOf(b) - sizeOf(a))) {
    const size = sizeOf(trace);
    if (size > room) {
      batches.push([]);
      room = EVENTS_AT_ONCE;
    }
    batches.at(-1)?.push(trace);
    room -= size;
  }
  return batches;
}

async function refusedOf(traces: readonly Trace[]): Promise<RefusedTrace[]> {
  const processes = Math.max(...traces.map((trace) => trace.processes.length));
  const all = traces.flatMap((trace) => trace.processes.flat());
  const requests = Math.max(...all.map(({ request }) => request)) + 1;
  if (processes * (requests + 1) > MAX_PROCESSES)
    throw new RangeError(`${processes} processes with ${requests} requests at a time are too many for Spin`);
  const counts = Math.max(...all.map(({ nc }) => nc)) + 1;
  const printed = await spin('nonces', {
    macros: {
      TRACE: 1,
      TRACES: traces.length,
      PROCESSES: processes,
      MAX_REQUESTS: requests,
      COUNTS: counts,
    },
    compiler: ['-DNOREDUCE', '-DCOLLAPSE', `-DVECTORSZ=${8_192 + counts + 64 * processes * requests}`],
    // A trace that is not shown ends anywhere.
    checker: ['-E'],
    files: { 'events.h': headerOf(traces, processes) },
  });
  if (!printed.includes('errors: 0')) throw new Error(`a run of the model fails: ${printed.slice(-2_000)}`);
  const shown = new Map<number, number>();
  for (const [, number, count] of printed.matchAll(/^trace (\d+) shows (\d+)$/gm))
    shown.set(Number(number), Number(count));
  return traces.flatMap((trace, number) => {
    const count = shown.get(number) ?? 0;
    return count === sizeOf(trace) ? [] : [{ nonce: trace.nonce, shown: count, events: textOf(trace) }];
  });
}

function tracesOf(records: readonly FlightRecord[]): { traces: Trace[]; skipped: number } {
  const offers = new Map<string, Exchange[]>();
  for (const event of records.flatMap(({ events }) => events)) {
    if (event.kind !== 'exchange' || event.offered === '') continue;
    offers.set(event.offered, [...(offers.get(event.offered) ?? []), event]);
  }
  const traces: Trace[] = [];
  let skipped = 0;
  for (const [nonce, processes] of byNonce(records)) {
    if (isModelled(processes, offers.get(nonce) ?? []))
      traces.push({ nonce, processes: processes.map(({ events }) => eventsOf(events)) });
    else skipped += 1;
  }
  return { traces, skipped };
}

/** True if the record has the beginning of the nonce, which was issued once, and one handshake answers its challenge. */
function isModelled(processes: readonly Recorded[], [offer, ...others]: readonly Exchange[]): boolean {
  for (const { record, events } of processes) {
    const [first] = events;
    if (first?.kind !== 'exchange') continue;
    if (record.head.isCut && first.nc > 1) return false;
    // What a client's request obtains, a question about its credential answers, too, and the other way round.
    const isOfBoth = offer !== undefined && (offer.request === 0) !== (first.request === 0);
    if (isOfBoth && record.events.includes(offer)) return false;
  }
  return others.length === 0;
}

/** What one process recorded of one nonce. */
interface Recorded {
  readonly record: FlightRecord;
  readonly events: (Exchange | Taken)[];
}

/** The events of nonces with a count; others belong to nobody. */
function byNonce(records: readonly FlightRecord[]): Map<string, Recorded[]> {
  const nonces = new Map<string, Recorded[]>();
  for (const record of records) {
    for (const event of record.events) {
      const isCounted = event.kind === 'taken' || (event.kind === 'exchange' && event.nc > 0);
      if (!isCounted) continue;
      const processes = nonces.get(event.nonce) ?? [];
      nonces.set(event.nonce, processes);
      const last = processes.at(-1);
      if (last?.record === record) last.events.push(event);
      else processes.push({ record, events: [event] });
    }
  }
  return nonces;
}

/** The events of one process with one nonce, in their order. */
function eventsOf(recorded: readonly (Exchange | Taken)[]): TraceEvent[] {
  const timed: { readonly at: number; readonly event: TraceEvent }[] = [];
  /** When each request at a time is free again. */
  const free: number[] = [];
  for (const each of recorded) {
    if (each.kind === 'taken') {
      timed.push({ at: each.at, event: { kind: 'takes', request: 0, nc: each.nc } });
      continue;
    }
    const end = endOf(each);
    const idle = free.findIndex((at) => at <= each.at);
    const request = idle < 0 ? free.length : idle;
    free[request] = end?.at ?? Number.POSITIVE_INFINITY;
    timed.push({ at: each.at, event: { kind: 'begins', request, nc: each.nc } });
    if (end !== undefined) timed.push({ at: end.at, event: { kind: end.kind, request, nc: 0 } });
  }
  // Of events at one moment, what was begun before ends first.
  const rank = ({ kind }: TraceEvent): number => (kind === 'accepted' || kind === 'refused' ? 0 : 1);
  const events = timed.sort((a, b) => a.at - b.at || rank(a.event) - rank(b.event)).map(({ event }) => event);
  const end = events.findIndex(({ nc }) => nc > MAX_COUNT);
  return end < 0 ? events : events.slice(0, end);
}

/** How an attempt ended, and when its process knew it; undefined: it has not. */
function endOf({ at, ended, result }: Exchange): { at: number; kind: 'accepted' | 'refused' } | undefined {
  if (ended === 0) return undefined;
  const isRefused = result === 401;
  const isLost =
    typeof result === 'string' && (result.startsWith('lost') || result === 'upstream-credential-refused');
  if (isRefused || isLost) return { at: Math.max(ended, at) + NOTICE_MS, kind: 'refused' };
  return { at: Math.max(ended, at + Number.EPSILON * at), kind: 'accepted' };
}

function sizeOf({ processes }: Trace): number {
  return processes.reduce((sum, events) => sum + events.length, 0);
}

/** The traces in C. */
function headerOf(traces: readonly Trace[], processes: number): string {
  const lines = ['struct event { unsigned char kind; unsigned char request; short nc; };'];
  const names = traces.map((trace, number) =>
    Array.from({ length: processes }, (_, at) => {
      const events = (trace.processes[at] ?? []).map(
        ({ kind, request, nc }) => `{${KINDS[kind]},${request},${nc}},`,
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
      events.map(({ kind, request, nc }) => `${kind} ${request}${nc === 0 ? '' : `/${nc}`}`).join(', '),
    )
    .join('\n');
}
