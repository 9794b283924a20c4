import type { Head } from '../audit/seal.ts';
import type { OpenAddress } from '../base/open-port.ts';
import type { ClientUse } from '../control/client-view.ts';
import type { RegistrySnapshot } from '../control/merged-metrics.ts';
import type { AuditLines } from '../control/snapshot.ts';
import type { FormerState, WorkerState, WorkersState } from '../control/state.ts';
import type { AuditLine } from '../control/view.ts';
import type { CountedRefusal } from '../gateway/error-log.ts';
import type { SeenKey } from '../gateway/keys-seen.ts';
import type { ListenTls } from '../gateway/listener.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { VersionTest } from '../upstream/credential.ts';
import type { VersionChoice } from '../upstream/upstream-address.ts';

/** A worker that cannot be started; the message says why. */
export class WorkerError extends Error {
  override readonly name = 'WorkerError';
}

/** There is no worker that could check a configuration. */
export class NoWorkerError extends Error {
  override readonly name = 'NoWorkerError';

  constructor() {
    super('no worker serves at the moment: reload again when one does');
  }
}

/** A configuration that was activated. */
export interface Activation {
  /** Names of the changed sections and entries. */
  readonly changed: readonly string[];
  /** Resolves when credentials and limits are applied; rejects if some are not. */
  readonly settled: Promise<void>;
}

/** A version of a credential at a deployment, by their names. */
export interface DeploymentVersion extends VersionChoice {
  readonly deployment: string;
}

/** Another certificate for new connections of a listener. */
export interface TlsRenewal {
  /** Its number in the configuration. */
  readonly listener: number;
  readonly tls: ListenTls;
}

/** Names of metrics; `counts`: all counters and histograms; `all`: these and the gauges. */
export type WantedMetrics = readonly string[] | 'counts' | 'all';

export interface ReportOptions {
  /** Audit lines after this position are reported; undefined: none. */
  readonly auditFrom: number | undefined;
  readonly metrics: WantedMetrics;
  /** True: the state of the data plane is reported, too. */
  readonly withState: boolean;
}

export interface WorkerReport {
  /** Undefined: it was not asked for. */
  readonly state: WorkerState | undefined;
  readonly metrics: RegistrySnapshot;
  readonly lines: readonly AuditLine[];
  /** Refusals of clients, in the last report of a worker: the primary goes on with them. */
  readonly refusals: readonly CountedRefusal[];
  /** When API keys were last seen; empty unless all counts were asked for, which are read every few seconds. */
  readonly keysSeen: readonly SeenKey[];
  /** Position after these lines; undefined: none were asked for. */
  readonly auditPosition: number | undefined;
  /** The end of its audit log; undefined: none is written. */
  readonly auditHead: Head | undefined;
}

/**
 * The calls to a process that serves requests: `DataPlane` in that process, a proxy of it in the primary.
 * Arguments and results are plain data. Each method has a line in `WORKER_METHODS`.
 */
export interface Worker {
  report(options: ReportOptions): Promise<WorkerReport>;
  /** Returns the limits and refusals of a client. */
  clientUse(client: string): Promise<ClientUse>;
  /** Returns the record of the flight recorder as lines. */
  flightRecord(): Promise<string>;
  /** Tests a version at its upstream: `UpstreamCredential.test`. */
  testVersion(choice: DeploymentVersion): Promise<VersionTest>;
  /** Says which of these versions is not there; undefined: all are. */
  missing(choices: readonly DeploymentVersion[]): Promise<string | undefined>;
  /**
   * Puts versions in use that are known to be accepted: all of them, or none.
   * @throws Error if it has not all of them; the message says where they are in use, if they are anywhere
   */
  promote(choices: readonly DeploymentVersion[]): Promise<void>;
  renewTls(renewal: TlsRenewal): Promise<void>;
  /** Opens the file of the access log again, which may have been renamed. */
  reopenAccessLog(): Promise<void>;
  /** Skips the delay of the drain. */
  hurry(): Promise<void>;
}

/**
 * The methods of a worker, with the maximum wait of the primary for each in milliseconds. Without a limit, the worker
 * answers or is ended.
 */
export const WORKER_METHODS = {
  report: Number.POSITIVE_INFINITY,
  clientUse: 1_000,
  flightRecord: 5_000,
  testVersion: Number.POSITIVE_INFINITY,
  missing: Number.POSITIVE_INFINITY,
  promote: Number.POSITIVE_INFINITY,
  renewTls: Number.POSITIVE_INFINITY,
  reopenAccessLog: Number.POSITIVE_INFINITY,
  hurry: Number.POSITIVE_INFINITY,
} as const satisfies Record<keyof Worker, number>;

/** The states of the workers, with what the primary knows of them. */
export interface WorkersReport {
  /** Of each worker that counts now. */
  readonly states: readonly WorkerState[];
  /** Of workers that serve no more. */
  readonly former: FormerState;
  /** null: there is no primary. */
  readonly primary: WorkersState | null;
}

/**
 * The workers of the gateway: a data plane in this process, or one in each of several processes. What they have in common
 * with a worker concerns all of them; limits, refusals and flight records are those of the workers that respond in time.
 */
export interface Workers extends Pick<Worker, 'clientUse' | 'flightRecord' | 'testVersion' | 'promote'> {
  /** True from the opening of the ports to the end of the drain. */
  readonly live: boolean;
  /** Returns the audit lines of all processes after a position. */
  auditLines(position: number): AuditLines;
  /**
   * Opens the ports of the data plane; resolves to their addresses in the order of the configuration.
   * @throws Error if one of them cannot be opened; no worker is left then
   */
  start(): Promise<readonly OpenAddress[]>;
  /** @throws Error if the setup cannot be activated; the active one stays then */
  activate(setup: AppSetup): Promise<Activation>;
  renewTls(renewal: TlsRenewal): void;
  /**
   * Updates the metrics that are read, not counted. `names`: only these are wanted, counters or what requests change;
   * undefined: all.
   */
  observe(names?: readonly string[]): Promise<void>;
  states(): Promise<WorkersReport>;
  /** Opens the file of the access log again, which may have been renamed. */
  reopenAccessLog(): void;
  /** Drains as `DataPlane.drain`. */
  drain(): Promise<void>;
  hurry(): void;
}
