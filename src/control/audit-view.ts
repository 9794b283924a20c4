/*
 * The JSON of `/api/audit` and `/api/requests` for the console. The page in `console/` shares these types, so this file
 * imports nothing.
 */

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
export interface RequestRow {
  readonly kind: 'access';
  readonly seq: number;
  readonly time: string;
  readonly replica: string;
  readonly requestId: string;
  readonly client: string;
  readonly address: string;
  readonly deployment: string;
  readonly site: string;
  readonly operation: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: Readonly<Record<string, string | readonly string[] | null>>;
  /** True: path or parameters were too long to be recorded whole. */
  readonly cut?: boolean;
  readonly status: number;
  readonly code: string;
  readonly traceId?: string;
  /** Address of the trace in the tracing system; absent without `control.traceUrl` or without a trace. */
  readonly traceUrl?: string;
  readonly upstream?: {
    readonly status: number;
    readonly attempts: number;
    readonly challenged: boolean;
    readonly durationMs: number;
    /** Parts of it; absent if shorter than a tenth of a millisecond. */
    readonly queueMs?: number;
    readonly connectMs?: number;
    readonly earlierMs?: number;
    readonly address: string;
  };
  readonly credential?: { readonly name: string; readonly version: string };
  /** The client's rule that names the credential; absent: none does. */
  readonly credentialRule?: string;
  /** Name of the API key that the client presented; absent: none. */
  readonly key?: string;
  /** Code with which the client's rules would have refused it; absent: they allowed it, or it was refused. */
  readonly wouldRefuse?: string;
  /** Absent: the log does not have it. */
  readonly outcome?: {
    readonly time: string;
    readonly status: number;
    readonly code: string;
    readonly outcome?: string;
    readonly bytes: { readonly in: number; readonly out: number };
    readonly durationMs: number;
  };
}

/** An admin record: an event of the gateway itself, with its details. */
export interface EventRow {
  readonly kind: 'admin';
  readonly seq: number;
  readonly time: string;
  readonly replica: string;
  readonly event: string;
  readonly [detail: string]: unknown;
}

/** Usage by group, those with the most requests first. */
export interface UsageView {
  /** Names of the fields of the groups. */
  readonly by: readonly string[];
  readonly rows: readonly UsageRowView[];
  /** The sum of the rows that were left out, since there are too many; null: none was. */
  readonly other: UsageRowView | null;
  readonly total: UsageRowView;
  readonly daily: readonly (UsageCountsView & { readonly day: string })[];
  /** Sentences about what could not be counted, read or trusted. */
  readonly notes: readonly string[];
}

interface UsageCountsView {
  readonly requests: number;
  readonly identifiers: number;
  /** Requests with a list of identifiers of which nothing, or not all, is recorded. */
  readonly uncounted: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Responses with a status from 400 on, and how many of each. */
  readonly errors: number;
  readonly statuses: Readonly<Record<string, number>>;
}

export interface UsageRowView extends UsageCountsView {
  /** Values of the fields, in their order. */
  readonly values: readonly string[];
  /** Days (UTC) with a request. */
  readonly days: number;
}
