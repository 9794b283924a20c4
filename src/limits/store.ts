/** What a process has used of a limit, and what it needs to know. */
export interface Report {
  /** Requests that this process has admitted since it started, … */
  readonly total: number;
  /** … how many of them were settled before, … */
  readonly settled: number;
  /** … and how many of the rest are not charged to the bucket: it has filled up meanwhile. */
  readonly forgiven: number;
  /** Requests since the last report, refused ones included. */
  readonly wanted: number;
  readonly inFlight: number;
  /** How long the process counts without another report, in milliseconds; 0: it leaves. */
  readonly lifetimeMs: number;
  /** 0: no rate is set. */
  readonly perSecond: number;
  readonly burst: number;
  /** For a store that lost what it had: tokens in the bucket, … */
  readonly tokens: number;
  /** … and requests of the day with this number since 1970, UTC. */
  readonly used: number;
  readonly day: number;
}

/** How a limit stands for all processes, this report included. */
export interface Standing {
  /** Tokens in the bucket; negative when several processes took the last one. */
  readonly tokens: number;
  /** Requests of this day, UTC. */
  readonly used: number;
  /** Requests under way in the other processes. */
  readonly othersInFlight: number;
  /** Processes, this one included. */
  readonly members: number;
  /** The part that this process is to use, by its part of the requests: above 0, at most 1. */
  readonly share: number;
}

/** Where processes settle what they use of one limit. */
export interface LimitStore {
  /** Rejects when the outcome is unknown; to report again what was reported already does no harm. */
  settle(name: string, report: Report): Promise<Standing>;
  close(): Promise<void>;
}

/**
 * What one process may use of what there is until it has asked again. The last one is for whoever comes
 * first: if two processes give it away, both pay for it later.
 */
export function partOf(available: number, share: number): number {
  return available >= 1 ? Math.max(1, available * share) : available * share;
}
