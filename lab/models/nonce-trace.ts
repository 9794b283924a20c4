import type { FlightRecord } from '../simulation/flight.ts';
import type { Trace, TraceEvent, TraceModel } from './traces.ts';

/*
 * From flight records, a trace of each nonce with a count for `nonces.pml`: for each process in order, when an attempt
 * begins with which count, how it ends, and when the nonce is taken over with which count.
 */

type Kind = 'BEGINS' | 'ACCEPTED' | 'REFUSED' | 'TAKES';

type Exchange = Extract<FlightRecord['events'][number], { kind: 'exchange' }>;
type Taken = Extract<FlightRecord['events'][number], { kind: 'taken' }>;

/** Spin has at most 255 processes. */
const MAX_PROCESSES = 250;
/** Of a longer trace the beginning is checked: every count makes a state larger. */
const MAX_COUNT = 2_000;
/** A process takes notice of a refusal so much later at most, in milliseconds: when it has read its body. */
const NOTICE_MS = 50;

/** `nonces.pml`, for traces of nonces. */
export const NONCES: TraceModel<Kind> = {
  name: 'nonces',
  kinds: ['BEGINS', 'ACCEPTED', 'REFUSED', 'TAKES'],
  sizeOf: (traces) => {
    const processes = Math.max(...traces.map((trace) => trace.processes.length));
    const all = traces.flatMap((trace) => trace.processes.flat());
    const requests = Math.max(...all.map(({ subject }) => subject)) + 1;
    if (processes * (requests + 1) > MAX_PROCESSES)
      throw new RangeError(
        `${processes} processes with ${requests} requests at a time are too many for Spin`,
      );
    const counts = Math.max(...all.map(({ value }) => value)) + 1;
    return { macros: { MAX_REQUESTS: requests, COUNTS: counts }, bytes: counts + 64 * processes * requests };
  },
};

/** The traces of records of gateways that share a store. `skipped`: nonces that the model does not know: `isModelled`. */
export function nonceTracesOf(records: readonly FlightRecord[]): {
  traces: Trace<Kind>[];
  skipped: number;
} {
  const offers = new Map<string, Exchange[]>();
  for (const event of records.flatMap(({ events }) => events)) {
    if (event.kind !== 'exchange' || event.offered === '') continue;
    offers.set(event.offered, [...(offers.get(event.offered) ?? []), event]);
  }
  const traces: Trace<Kind>[] = [];
  let skipped = 0;
  for (const [nonce, processes] of byNonce(records)) {
    const [first] = processes;
    if (first !== undefined && isModelled(processes, offers.get(nonce) ?? [])) {
      const events = processes.map((each) => eventsOf(each.events));
      traces.push({ name: `nonce ${nonce}`, record: first.record, processes: events });
    } else skipped += 1;
  }
  return { traces, skipped };
}

/** True if the record has the beginning of the nonce, which was issued once, and one handshake answers its challenge. */
function isModelled(processes: readonly Recorded[], [offer, ...others]: readonly Exchange[]): boolean {
  for (const { record, events } of processes) {
    const [first] = events;
    if (first?.kind !== 'exchange') continue;
    if (record.head.isCut && first.nc > 1) return false;
    // A challenge of a client's request is answered by a question about its credential, too, and the other way round.
    const isOfBoth = offer !== undefined && (offer.request === 0) !== (first.request === 0);
    if (isOfBoth && record.events.includes(offer)) return false;
  }
  return others.length === 0;
}

/** The events of one nonce that one process recorded. */
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
function eventsOf(recorded: readonly (Exchange | Taken)[]): TraceEvent<Kind>[] {
  const timed: { readonly at: number; readonly event: TraceEvent<Kind> }[] = [];
  /** When each request at a time is free again. */
  const free: number[] = [];
  for (const each of recorded) {
    if (each.kind === 'taken') {
      timed.push({ at: each.at, event: { kind: 'TAKES', subject: 0, value: each.nc } });
      continue;
    }
    const end = endOf(each);
    const idle = free.findIndex((at) => at <= each.at);
    const request = idle < 0 ? free.length : idle;
    free[request] = end?.at ?? Number.POSITIVE_INFINITY;
    timed.push({ at: each.at, event: { kind: 'BEGINS', subject: request, value: each.nc } });
    if (end !== undefined) timed.push({ at: end.at, event: { kind: end.kind, subject: request, value: 0 } });
  }
  // Of events at one moment, what was begun before ends first.
  const rank = ({ kind }: TraceEvent): number => (kind === 'ACCEPTED' || kind === 'REFUSED' ? 0 : 1);
  const events = timed.sort((a, b) => a.at - b.at || rank(a.event) - rank(b.event)).map(({ event }) => event);
  const end = events.findIndex(({ value }) => value > MAX_COUNT);
  return end < 0 ? events : events.slice(0, end);
}

/** How an attempt ended, and when its process knew it; undefined: it has not. */
function endOf({ at, ended, result }: Exchange): { at: number; kind: 'ACCEPTED' | 'REFUSED' } | undefined {
  if (ended === 0) return undefined;
  const isRefused = result === 401;
  const isLost =
    typeof result === 'string' && (result.startsWith('lost') || result === 'upstream-credential-refused');
  if (isRefused || isLost) return { at: Math.max(ended, at) + NOTICE_MS, kind: 'REFUSED' };
  return { at: Math.max(ended, at + Number.EPSILON * at), kind: 'ACCEPTED' };
}
