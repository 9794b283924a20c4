/*
 * The JSON of `/api` for the console. The page in `console/` shares these types with the gateway and no
 * other file, so this file imports nothing.
 */

/** `ok`; `degraded`: an error, but requests are served; `broken`: requests are not served. */
export type State = 'ok' | 'degraded' | 'broken';

export interface Condition {
  readonly state: State;
  /** Sentences with the reasons, the gravest first. Never empty. */
  readonly reasons: readonly string[];
}

/** The state of the gateway at one moment. Times are Unix milliseconds, durations are seconds. */
export interface Snapshot {
  readonly at: number;
  /** True if the control plane requires a token. */
  readonly tokenAsked: boolean;
  readonly gateway: GatewayView;
  readonly deployments: readonly DeploymentView[];
  readonly clients: readonly ClientView[];
  readonly errors: readonly ErrorView[];
  /** null if no audit log is configured. */
  readonly audit: AuditView | null;
}

export interface GatewayView extends Condition {
  readonly version: string;
  readonly node: string;
  readonly startedAt: number;
  readonly configuredAt: number;
  /** null without Redis. */
  readonly storeUp: boolean | null;
}

export interface DeploymentView extends Condition {
  readonly name: string;
  readonly origin: string;
  readonly perSecond: Rates;
  /** Undefined if no request ended in the last seconds. */
  readonly latency?: Latency;
  readonly inFlight: number;
  readonly nonce: NonceView;
  readonly credentials: readonly CredentialView[];
  /** The addresses of the upstream, in the order of the configuration. */
  readonly addresses: readonly AddressView[];
  /** Responses of the last minute by outcome, in the order of the configuration; empty if it has none. */
  readonly outcomes: readonly OutcomeView[];
  readonly certificateExpiresAt?: number;
}

/** One address of an upstream. */
export interface AddressView {
  /** Host and port. */
  readonly address: string;
  readonly health: 'unknown' | 'healthy' | 'failing';
  /** Seconds since the health changed. */
  readonly age: number;
  readonly circuit: 'closed' | 'open' | 'half-open';
}

/** Rates of the last few seconds. */
export interface Rates {
  readonly requests: number;
  /** Responses of 500 and above, from the gateway or the upstream. */
  readonly errors: number;
  readonly challenges: number;
}

export interface Latency {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
}

export interface NonceView {
  readonly policy: 'shared' | 'exclusive' | 'single-use';
  /** Undefined if no nonce is in use. */
  readonly age?: number;
  /** Undefined if not learned yet. */
  readonly lifetime?: number;
}

export interface CredentialView {
  readonly name: string;
  readonly version: string;
  readonly state:
    | 'in use'
    | 'kept as fallback'
    | 'waits to be tried'
    | 'rejected by the upstream'
    | 'refused';
  readonly refused: boolean;
  readonly changedAt?: number;
}

export interface OutcomeView {
  readonly name: string;
  readonly lastMinute: number;
}

export interface ClientView {
  /** Name in the configuration; empty for unidentified clients. */
  readonly name: string;
  readonly perSecond: number;
  readonly requests: number;
  /** Refusals of the gateway, the most frequent first. */
  readonly refusals: readonly CodeCount[];
  readonly refusedLastMinute: number;
}

export interface CodeCount {
  readonly code: string;
  readonly count: number;
}

/** All errors of one code and deployment. */
export interface ErrorView {
  /** Empty if the error belongs to no deployment. */
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
  /** Undefined while records can be written. */
  readonly failing?: string;
  readonly records: number;
  readonly failures: number;
  readonly chain: ChainView;
}

/** Result of the latest check of the audit log's chain. */
export interface ChainView {
  readonly state: 'intact' | 'altered' | 'unchecked' | 'checking';
  /** A sentence that explains the state. */
  readonly detail: string;
  readonly checkedAt?: number;
}

/** One line of the audit log, reduced to the fields that the console shows. */
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

/** The last quarter of an hour, oldest first; every list is as long as `times`. */
export interface History {
  /** Unix milliseconds of the end of each interval. */
  readonly times: readonly number[];
  readonly deployments: Readonly<Record<string, Series>>;
}

/** null if the deployment did not exist or no request ended. Rates per second, percentiles in seconds. */
export type Series = Readonly<Record<SeriesName, readonly (number | null)[]>>;

export type SeriesName = 'requests' | 'errors' | 'challenges' | 'p50' | 'p95' | 'p99';

/** The values of one interval. */
export type Point = Readonly<Record<SeriesName, number | null>>;

/** One event of the stream, sent every second. */
export interface Tick {
  readonly snapshot: Snapshot;
  /** Intervals that ended since the last tick. */
  readonly points: readonly { readonly at: number; readonly deployments: Readonly<Record<string, Point>> }[];
  /** Lines since the last tick, oldest first; limited to the newest ones. */
  readonly audit: readonly AuditLine[];
}
