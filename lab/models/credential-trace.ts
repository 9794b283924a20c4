import type { FlightRecord } from '../simulation/flight.ts';
import type { Trace, TraceEvent, TraceModel } from './traces.ts';

/*
 * From flight records, a trace of each credential of each process for `credential.pml`: what showed whether the upstream
 * accepts its versions, what the process took for true, and which version it put in use.
 */

const KINDS = [
  'OFFER',
  'IS_ACCEPTED',
  'VERIFIES',
  'QUESTIONS',
  'REPLY_ACCEPTED',
  'REPLY_REFUSED',
  'REPLY_UNCLEAR',
  'VERDICT_ACCEPTED',
  'VERDICT_REFUSED',
  'VERDICT_UNCLEAR',
  'SETTLED',
  'REFUSED_BY_VERDICT',
  'REFUSED_BY_REPLY',
  'REFUSED_BY_TRIAL',
  'REFUSED_BY_TEST',
  'RESET_BY_VERDICT',
  'RESET_BY_REPLY',
  'RESET_BY_FAILURE',
  'RESET_BY_OPERATOR',
  'RESET_BY_OTHERS',
  'RESET_BY_OFFER',
  'RESET_BY_DUE',
  'RESET_BY_AGE',
  'PROMOTED_BY_VERDICT',
  'PROMOTED_BY_ACCEPTED',
  'PROMOTED_BY_TRIAL',
  'PROMOTED_BY_OPERATOR',
  'TRIAL_ACCEPTED',
  'TRIAL_REFUSED',
  'TRIAL_WORSE',
  'TRIAL_ENDED',
  'TEST_ACCEPTED',
  'TEST_REFUSED',
  'TEST_UNCLEAR',
  'ADMITTED',
  'FAILED',
] as const;

type Kind = (typeof KINDS)[number];

type Change = Extract<FlightRecord['events'][number], { owner: number }>;

/** The bits of a set of versions; a trace is checked until it has more. */
const MAX_VERSIONS = 30;

/** `credential.pml`, for traces of credentials. */
export const CREDENTIALS: TraceModel<Kind> = {
  name: 'credential',
  kinds: KINDS,
  sizeOf: (traces) => {
    const versions = Math.max(
      ...traces.flatMap(({ processes }) => processes.flat()).map((event) => highestOf(event)),
    );
    return { macros: { VERSIONS: versions + 1 }, bytes: 64 * (versions + 1) };
  },
};

/** The traces of records. `skipped`: credentials whose beginning is no longer in the record. */
export function credentialTracesOf(records: readonly FlightRecord[]): {
  traces: Trace<Kind>[];
  skipped: number;
} {
  const traces: Trace<Kind>[] = [];
  let skipped = 0;
  for (const record of records) {
    const { head, events } = record;
    const owners = Map.groupBy(
      events.filter((event): event is Change => 'owner' in event),
      ({ owner }) => owner,
    );
    for (const [owner, changes] of owners) {
      const [first] = changes;
      // Of a credential whose beginning is no longer there, a later offer looks like the first.
      if (first?.kind !== 'offer' || head.areChangesCut) skipped += 1;
      else {
        const name = `credential ${owner} (${first.deployment}/${first.credential})`;
        traces.push({ name, record, processes: [eventsOf(changes)] });
      }
    }
  }
  return { traces, skipped };
}

function eventsOf(changes: readonly Change[]): TraceEvent<Kind>[] {
  const numbers = new Map<string, number>();
  const begun = changes[0]?.at ?? 0;
  const events: TraceEvent<Kind>[] = [];
  for (const change of changes) {
    for (const version of change.versions) if (!numbers.has(version)) numbers.set(version, numbers.size);
    if (numbers.size > MAX_VERSIONS) break;
    const [subject = 0, ...others] = change.versions.map((version) => numbers.get(version) ?? 0);
    const set = [subject, ...others].reduce((bits, number) => bits | (1 << number), 0);
    const kind = kindOf(change);
    if (kind === 'OFFER' || kind.startsWith('PROMOTED')) events.push({ kind, subject, value: set });
    else if (kind === 'ADMITTED')
      events.push({ kind, subject: change.count, value: Math.round(change.at - begun) });
    else events.push({ kind, subject, value: change.count });
  }
  return events;
}

/** @throws RangeError if the model has no such event */
function kindOf({ kind, by, result }: Change): Kind {
  const [name] = KINDS.filter((each) => each === nameOf(kind, by, result));
  if (name === undefined) throw new RangeError(`no event of the model: ${kind} ${by} ${result}`);
  return name;
}

function nameOf(kind: Change['kind'], by: string, result: string): string {
  switch (kind) {
    case 'accepted':
      return 'IS_ACCEPTED';
    case 'verifies':
      return by === 'verdict' ? 'VERIFIES' : 'QUESTIONS';
    case 'reply': {
      if (by === 'verification') return `REPLY_${result.toUpperCase()}`;
      return `${by}_${result}`.toUpperCase();
    }
    case 'verdict':
      return `VERDICT_${result.toUpperCase()}`;
    case 'rejected':
    case 'waiting':
      return 'TRIAL_ENDED';
    case 'refused':
    case 'reset':
    case 'promoted':
      return `${kind}_by_${by === 'other-process' ? 'others' : by}`.toUpperCase();
    default:
      return kind.toUpperCase();
  }
}

/** The highest number of a version in an event. */
function highestOf({ kind, subject, value }: TraceEvent<Kind>): number {
  if (kind === 'ADMITTED') return 0;
  return kind === 'OFFER' || kind.startsWith('PROMOTED') ? 31 - Math.clz32(value) : subject;
}
