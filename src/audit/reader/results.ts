/*
 * The results of searches and reports of usage. The console's page shares these types, so this file imports
 * nothing.
 */

/** An access record, as far as it is searched. */
export interface AccessLine {
  readonly seq: number;
  readonly time: string;
  readonly requestId: string;
  readonly replica: string;
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
    readonly egress?: string;
  };
  readonly credential?: { readonly name: string; readonly version: string };
  /** The client's rule that names the credential; absent: none does. */
  readonly credentialRule?: string;
  /** Name of the API key that the client presented; absent: none. */
  readonly key?: string;
  /** Code with which the client's rules would have refused it; absent: they allowed it, or it was refused. */
  readonly wouldRefuse?: string;
}

/** How a response ended. */
export interface EndLine {
  /** Undefined: the response belongs to no outcome. */
  readonly outcome?: string;
  readonly bytes: { readonly in: number; readonly out: number };
  readonly durationMs: number;
}

/** An outcome record, or what an access record says about the end of a response that was whole at its head. */
export interface OutcomeLine extends EndLine {
  readonly time: string;
  readonly status: number;
  readonly code: string;
}

/** An admin record: an event of the gateway itself, with its details. */
export interface EventLine {
  readonly seq: number;
  readonly time: string;
  readonly replica: string;
  readonly event: string;
  readonly [detail: string]: unknown;
}

export interface UsageCounts {
  readonly requests: number;
  /** Items of the lists of identifiers. */
  readonly identifiers: number;
  /** Requests with a list of which nothing, or not all, is recorded. */
  readonly uncounted: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Responses with a status from 400 on, and how many of each. */
  readonly errors: number;
  readonly statuses: Readonly<Record<string, number>>;
}

export interface UsageRow extends UsageCounts {
  /** Values of the fields of the group, in their order. */
  readonly values: readonly string[];
  /** Days (UTC) with a request. */
  readonly days: number;
}

export interface UsageDay extends UsageCounts {
  /** Such as 2026-03-01. */
  readonly day: string;
}
