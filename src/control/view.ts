/*
 * What the console shows, as `/api` gives it. The page in `console/` reads these types and nothing else of the
 * gateway, so this file imports nothing.
 */

/** In words first: `ok`, something is `degraded` but served, or `broken`: nothing is served. */
export type State = 'ok' | 'degraded' | 'broken';

export interface Condition {
  readonly state: State;
  /** Sentences that say why, the gravest first. Never empty. */
  readonly reasons: readonly string[];
}

/** One moment of the gateway. Times are Unix milliseconds, the rest seconds. */
export interface Snapshot {
  readonly at: number;
  /** Whether whoever reads this has shown a token. */
  readonly tokenAsked: boolean;
  readonly gateway: GatewayView;
  readonly deployments: readonly DeploymentView[];
  readonly clients: readonly ClientView[];
  readonly faults: readonly FaultView[];
  /** null: no audit is configured. */
  readonly audit: AuditView | null;
}

export interface GatewayView extends Condition {
  readonly version: string;
  readonly node: string;
  readonly startedAt: number;
  readonly configuredAt: number;
  /** null: without Redis. */
  readonly storeUp: boolean | null;
}

export interface DeploymentView extends Condition {
  readonly name: string;
  readonly origin: string;
  readonly perSecond: Rates;
  /** Undefined: no request ended in the last seconds. */
  readonly latency?: Latency;
  readonly inFlight: number;
  readonly nonce: NonceView;
  readonly credentials: readonly CredentialView[];
  readonly certificateExpiresAt?: number;
}

/** Of the last few seconds. */
export interface Rates {
  readonly requests: number;
  /** Answers of 500 and above, the gateway's own and the upstream's. */
  readonly errors: number;
  readonly challenges: number;
}

export interface Latency {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
}

export interface NonceView {
  readonly policy: string;
  /** Undefined: none is in use. */
  readonly age?: number;
  /** Undefined: not learned yet. */
  readonly lifetime?: number;
}

export interface CredentialView {
  readonly name: string;
  readonly version: string;
  /** In words: in use, refused, … */
  readonly state: string;
  readonly refused: boolean;
  readonly changedAt?: number;
}

export interface ClientView {
  /** Of the configuration; empty: no known client. */
  readonly name: string;
  readonly perSecond: number;
  readonly requests: number;
  /** What the gateway refused, the most frequent first. */
  readonly refusals: readonly CodeCount[];
  readonly refusedLastMinute: number;
}

export interface CodeCount {
  readonly code: string;
  readonly count: number;
}

/** All faults of one code and deployment. */
export interface FaultView {
  /** Empty: it belongs to none. */
  readonly deployment: string;
  readonly code: string;
  readonly title: string;
  /** What happened and what to do. */
  readonly advice: string;
  readonly count: number;
  readonly lastAt: number;
  readonly requestId: string;
}

export interface AuditView {
  /** Undefined: records are written. */
  readonly failing?: string;
  readonly records: number;
  readonly failures: number;
  readonly chain: ChainView;
}

/** What the last look at the chain of the audit log found. */
export interface ChainView {
  readonly state: 'intact' | 'altered' | 'unchecked' | 'checking';
  /** A sentence. */
  readonly detail: string;
  readonly checkedAt?: number;
}

/** One line of the audit log, as far as the console shows it. */
export interface AuditLine {
  readonly seq: number;
  readonly time: string;
  readonly kind: string;
  readonly client: string;
  readonly deployment: string;
  readonly site: string;
  readonly operation: string;
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
}

/** Of the last quarter of an hour, oldest first; every list is as long as `times`. */
export interface History {
  /** Unix milliseconds of the end of each interval. */
  readonly times: readonly number[];
  readonly deployments: Readonly<Record<string, Series>>;
}

/** null: the deployment was not there, or no request ended. Rates per second, percentiles in seconds. */
export type Series = Readonly<Record<SeriesName, readonly (number | null)[]>>;

export type SeriesName = 'requests' | 'errors' | 'challenges' | 'p50' | 'p95' | 'p99';

/** The values of one interval. */
export type Point = Readonly<Record<SeriesName, number | null>>;

/** What the stream of events sends every second. */
export interface Tick {
  readonly snapshot: Snapshot;
  /** Intervals that ended since the last tick. */
  readonly points: readonly { readonly at: number; readonly deployments: Readonly<Record<string, Point>> }[];
  /** New since the last tick, oldest first; of very many only the newest. */
  readonly audit: readonly AuditLine[];
}
