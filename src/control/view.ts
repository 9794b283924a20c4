/*
 * The JSON of `/api` for the console. The page in `console/` shares these types and names, so this file
 * imports nothing.
 */

/** The worst first. `down`: requests are not served; `degraded`: an error, but they are. */
export const STATES = ['down', 'degraded', 'ok'] as const;
export type State = (typeof STATES)[number];

export interface Condition {
  readonly state: State;
  /** Sentences with the reasons, the gravest first. Never empty. */
  readonly reasons: readonly string[];
  /** A sentence with the next step for the gravest; empty: nothing is to be done. */
  readonly next: string;
}

/** The state of the gateway at one moment. Times are Unix milliseconds, durations are seconds. */
export interface Snapshot {
  readonly at: number;
  /** True if the control plane requires a token. */
  readonly tokenAsked: boolean;
  readonly gateway: GatewayView;
  /** All deployments together. */
  readonly total: TrafficView;
  readonly deployments: readonly DeploymentView[];
  readonly clients: readonly ClientView[];
  readonly errors: readonly ErrorView[];
  /** null if no audit log is configured. */
  readonly audit: AuditView | null;
}

/** Something that is wrong now, or a warning: then its state is `ok`. */
export interface Problem {
  readonly state: State;
  /** A sentence. */
  readonly text: string;
  /** A sentence with the next step; empty: it is in the text. */
  readonly next: string;
  /** The deployment that it is about; undefined: the gateway itself. */
  readonly deployment?: string;
}

interface GatewayView {
  readonly state: State;
  /** The gravest first. */
  readonly problems: readonly Problem[];
  readonly version: string;
  readonly node: string;
  readonly startedAt: number;
  readonly configuredAt: number;
  /** null without Redis. */
  readonly storeUp: boolean | null;
  /** In the order of the configuration. */
  readonly listeners: readonly ListenerView[];
  /** Those that serve requests, by number. */
  readonly processes: readonly ProcessView[];
  /** Running and configured workers; null: the gateway is one process. */
  readonly workers: { readonly serving: number; readonly configured: number } | null;
}

/** A process that serves requests. */
export interface ProcessView {
  /** 0: the gateway is one process. */
  readonly worker: number;
  readonly pid: number;
  readonly stage: 'starting' | 'serving' | 'draining';
  /** True if it serves requests, and nothing is in the way. */
  readonly serves: boolean;
  /** Unix milliseconds. */
  readonly startedAt: number;
  /** Resident memory in bytes. */
  readonly memory: number;
  /** CPU time since its start. */
  readonly cpuSeconds: number;
  /** Open connections of clients. */
  readonly connections: number;
}

/** One address of the data plane. */
export interface ListenerView {
  /** Such as `127.0.0.1:8080`, or `unix:` and the path of a socket. */
  readonly address: string;
  /** Open connections of clients, those in a TLS handshake among them. */
  readonly connections: number;
  /** `mutual`: clients are asked for a certificate, too. */
  readonly tls: 'none' | 'server' | 'mutual';
  /** Expiry of the certificate of the gateway. */
  readonly certificateExpiresAt?: number;
}

/** Traffic of the last few seconds. */
interface TrafficView {
  readonly perSecond: Rates;
  /** Undefined if no request ended in the last seconds. */
  readonly latency?: Latency;
  /** The share of the accepted requests that waited for no challenge; null: none was accepted. */
  readonly reuse: number | null;
  readonly inFlight: number;
}

export interface DeploymentView extends Condition, TrafficView {
  readonly name: string;
  readonly origin: string;
  readonly connections: ConnectionsView;
  readonly nonce: NonceView;
  readonly credentials: readonly CredentialView[];
  /** The addresses of the upstream, in the order of the configuration. */
  readonly addresses: readonly AddressView[];
  /** The local addresses, in the order of the configuration; empty: the system chooses. */
  readonly egress: readonly EgressView[];
  /** Responses of the last minute by outcome, in the order of the configuration; empty if it has none. */
  readonly outcomes: readonly OutcomeView[];
}

/** Connections to all addresses of an upstream, of all processes. */
interface ConnectionsView {
  readonly open: number;
  /** Those of them that carry a request. */
  readonly busy: number;
  /** Requests that wait for a connection. */
  readonly queued: number;
  /** The most connections now. */
  readonly limit: number;
}

/** One address of an upstream. */
export interface AddressView {
  /** Host and port. */
  readonly address: string;
  readonly health: 'unknown' | 'healthy' | 'failing';
  /** Seconds since the health changed. */
  readonly age: number;
  readonly circuit: 'closed' | 'open' | 'half-open';
  /** Why it is failing; empty otherwise. */
  readonly reason: string;
  /** Exchanges since the start: a page computes the rate from two of these. */
  readonly exchanges: number;
}

/** A local address that connections leave from. */
interface EgressView {
  readonly address: string;
  readonly status: 'in-use' | 'standby' | 'refused' | 'missing';
  /** The status for people. */
  readonly state: string;
}

/** Rates of the last few seconds. */
interface Rates {
  readonly requests: number;
  /** Responses of 500 and above, from the gateway or the upstream. */
  readonly errors: number;
  /** Refused to clients with a 4xx error of the gateway. */
  readonly refused: number;
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
  readonly status: 'in-use' | 'fallback' | 'candidate' | 'waiting' | 'rejected' | 'refused';
  /** The status for people. */
  readonly state: string;
  /** True if it is in use, and the upstream refuses it. */
  readonly refused: boolean;
  /** Its place in the configuration; undefined: it has left its sources, and is kept as a fallback. */
  readonly role?: 'current' | 'next';
  readonly changedAt?: number;
}

interface OutcomeView {
  readonly name: string;
  readonly lastMinute: number;
}

export interface ClientView {
  /** Name in the configuration; empty for unidentified clients. */
  readonly name: string;
  readonly perSecond: number;
  readonly requests: number;
  /** When its latest request ended, in Unix milliseconds; null: it has had none since the start. */
  readonly lastSeen: number | null;
  /** Refusals of the gateway, the most frequent first. */
  readonly refusals: readonly CodeCount[];
  readonly refusedLastMinute: number;
}

export interface CodeCount {
  readonly code: string;
  readonly count: number;
}

/** All errors of one code and deployment. */
export interface ErrorState {
  /** Empty if the error belongs to no deployment. */
  readonly deployment: string;
  readonly code: string;
  /** Says what happened and what to do. */
  readonly detail: string;
  readonly count: number;
  /** Unix milliseconds. */
  readonly lastAt: number;
  readonly requestId: string;
}

export interface ErrorView extends ErrorState {
  readonly title: string;
  /** Status of the response to the client. */
  readonly status: number;
}

/** The meaning of an error code. Names in its texts are between backticks. */
export interface ErrorKindView {
  readonly code: string;
  readonly status: number;
  readonly title: string;
  readonly cause: string;
  readonly remedy: string;
}

export interface AuditView {
  /** Undefined while records can be written. */
  readonly failing?: string;
  readonly records: number;
  readonly failures: number;
  /** Result of the check of its chain at the start; `detail`: a sentence that explains it. */
  readonly chain: { readonly state: 'intact' | 'altered'; readonly detail: string };
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

/** Lengths of the charts. */
export const RANGES = ['15m', '3h', '24h'] as const;
export type Range = (typeof RANGES)[number];

/** The history of one deployment, oldest first; every list is as long as `times`. */
export interface History {
  /** Unix milliseconds of the end of each interval. */
  readonly times: readonly number[];
  readonly series: Series;
}

/** null if the deployment did not exist or no request ended. Rates per second, percentiles in seconds, a share. */
export type Series = Readonly<Record<SeriesName, readonly (number | null)[]>>;

/** Responses by class of their status, challenges, the share that reused a nonce, and percentiles of the latency. */
export const SERIES = ['2xx', '3xx', '4xx', '5xx', 'challenges', 'reuse', 'p50', 'p95', 'p99'] as const;
export type SeriesName = (typeof SERIES)[number];

/** The values of one interval. */
export type Point = Readonly<Record<SeriesName, number | null>>;

/** Rates in the last quarter of an hour, the oldest first; all lists are as long. */
export interface Sparklines {
  readonly deployments: Readonly<Record<string, Sparkline>>;
  /** All deployments together, with more points. */
  readonly total: History;
}

interface Sparkline {
  readonly requests: readonly (number | null)[];
  readonly errors: readonly (number | null)[];
}

/** Facts of a deployment that are not in the snapshot, since they seldom change. */
export interface DeploymentDetail {
  /** Undefined without TLS, and before the first full handshake. */
  readonly tls?: TlsView;
  readonly settings: DeploymentSettings;
}

/** The last full TLS handshake. */
export interface TlsView {
  /** For example `TLSv1.3`. */
  readonly protocol: string;
  /** The upstream's own certificate first. */
  readonly chain: readonly [CertificateView, ...CertificateView[]];
}

export interface CertificateView {
  /** Distinguished names, one attribute a line. */
  readonly subject: string;
  readonly issuer: string;
  readonly validFrom: number;
  readonly expiresAt: number;
}

/** The limits of the configuration that apply to a deployment, as it has them: in milliseconds and bytes. */
export interface DeploymentSettings {
  /** The most connections to each address; workers share them. */
  readonly connections: number;
  readonly timeouts: {
    readonly connect: number;
    readonly response: number;
    readonly idle: number;
    readonly total: number;
  };
  /** `minRate`: in bytes per second; 0: any rate. */
  readonly body: { readonly replayUpTo: number; readonly max: number; readonly minRate: number };
  readonly retry: { readonly attempts: number };
  /** Of all clients together. */
  readonly limits: LimitsView | undefined;
  /** Clients with limits that may use the deployment. */
  readonly clients: readonly { readonly client: string; readonly limits: LimitsView }[];
}

export interface LimitsView {
  readonly rate: { readonly perSecond: number; readonly burst: number } | undefined;
  readonly concurrent: number | undefined;
  readonly daily: number | undefined;
}

/** One event of the stream, sent every second. */
export interface Tick {
  readonly snapshot: Snapshot;
  /** Lines since the last tick, oldest first; limited to the newest ones. */
  readonly audit: readonly AuditLine[];
}

/** The ways of requests from clients to deployments, in the order of the configuration. */
export interface MapView {
  readonly ways: readonly WayView[];
  /** Number of ways that were left out. */
  readonly more: number;
}

/** From a client by its rules to a deployment. */
export interface WayView {
  /** Empty for unidentified clients. */
  readonly client: string;
  /** Empty: the requests named none. */
  readonly deployment: string;
  /** Paths in the configuration; empty: no rule allows it, and requests were refused. */
  readonly rules: readonly string[];
  /** Of the last seconds. */
  readonly perSecond: number;
  /** Of these, refused with a 4xx error of the gateway. */
  readonly refusedPerSecond: number;
}

/** A certificate that the gateway shows, or that an upstream has shown. */
export interface CertificateUseView {
  /** Address of the listener, or name of the deployment. */
  readonly name: string;
  readonly kind: 'listener' | 'upstream' | 'authority';
  /** Distinguished names, one attribute a line; empty: not known. */
  readonly subject: string;
  readonly issuer: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
  /** `degraded`: it expires soon; `down`: it has expired. */
  readonly state: State;
}
