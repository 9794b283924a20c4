/*
 * The JSON of `/api/audit` and `/api/requests` for the console. The page in `console/` shares these types, so this file
 * imports only types of what searches return.
 */
import type { AccessLine, EventLine, OutcomeLine, UsageDay, UsageRow } from '../audit/reader/results.ts';

/** Requests and events, the newest first. */
export interface SearchView {
  readonly rows: readonly (RequestRow | EventRow)[];
  /** Gives the next page; null: the whole time range was searched. */
  readonly cursor: string | null;
  /** Everything newer than this was searched; null: the whole time range. */
  readonly searchedTo: string | null;
  readonly recordsRead: number;
  /** Sentences about parts of the log that could not be read or trusted. */
  readonly notes: readonly string[];
}

/** The access record of a request, with its end. */
export interface RequestRow extends AccessLine {
  readonly kind: 'access';
  /** Address of the trace in the tracing system; absent without `control.traceUrl` or without a trace. */
  readonly traceUrl?: string;
  /** Absent: the log does not have it. */
  readonly outcome?: OutcomeLine;
}

export interface EventRow extends EventLine {
  readonly kind: 'admin';
}

/** Usage by group, those with the most requests first. */
export interface UsageView {
  /** Names of the fields of the groups. */
  readonly by: readonly string[];
  readonly rows: readonly UsageRow[];
  /** The sum of the rows that were left out, since there are too many; null: none was. */
  readonly other: UsageRow | null;
  readonly total: UsageRow;
  readonly daily: readonly UsageDay[];
  /** Sentences about what could not be counted, read or trusted. */
  readonly notes: readonly string[];
}
