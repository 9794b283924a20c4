import type { AddressInfo } from 'node:net';
import type { DeploymentVersion } from '../app/serving.ts';
import type { Head } from '../audit/seal.ts';
import { answerCall, CallClient, type ProcessPort, readRequest } from '../base/message-calls.ts';
import type { ClientUse } from '../control/client-view.ts';
import type { PlaneReport } from '../control/merge.ts';
import type { AuditLine } from '../control/view.ts';
import type { CountedRefusal } from '../gateway/error-log.ts';
import type { ListenTls } from '../gateway/listener.ts';
import type { RegistrySnapshot } from '../metrics/merged-metrics.ts';
import type { TransferredSetup } from '../setup/transfer.ts';
import type { VersionTest } from '../upstream/credential.ts';

/** Version of what primary and workers call of each other. In an upgrade, they can be of different versions of the program. */
export const PROTOCOL = 5;

/** Name of the service that each worker is for its primary. */
const SERVICE = 'worker';
/** Name in the message of a worker that serves calls from now on. */
const READY = 'worker ready';

/** Functions of a worker. */
export interface WorkerFunctions {
  /** Builds the data plane. */
  open(start: WorkerStart): Promise<void>;
  /** Opens the port that the workers share; resolves to its address, or why it cannot be opened. */
  listen(): Promise<AddressInfo | ListenFailure>;
  /** Does nothing, which shows that the event loop turns. */
  beat(): void;
  /** Builds another configuration beside the active one; resolves to the names of what changed. */
  prepare(setup: TransferredSetup): Promise<readonly string[]>;
  /** Drops what was prepared. */
  abandon(): void;
  /** Activates at once what was prepared; resolves when credentials and limits are applied. */
  commit(): Promise<void>;
  renewTls(tls: ListenTls): void;
  reopenAccessLog(): void;
  report(options: ReportOptions): Promise<WorkerReport>;
  testVersion(choice: DeploymentVersion): Promise<VersionTest>;
  /** Says which of these versions is not there; undefined: all are. */
  missing(choices: readonly DeploymentVersion[]): string | undefined;
  /** Puts these versions in use, or none of them. */
  promote(choices: readonly DeploymentVersion[]): Promise<void>;
  clientUse(client: string): Promise<ClientUse>;
  /** Drains and closes everything; resolves to the last report. */
  drain(options: DrainOptions): Promise<WorkerReport>;
  /** Skips the delay of the drain. */
  hurry(): void;
}

export interface WorkerStart {
  readonly protocol: number;
  /** Names the audit folder of this worker; no other process has the same. */
  readonly number: number;
  /** Number of workers, among which limits of the whole gateway are divided. */
  readonly workers: number;
  readonly setup: TransferredSetup;
}

export interface ListenFailure {
  readonly message: string;
  /** True: the message names the key of the configuration and the remedy. */
  readonly isPortError: boolean;
}

export interface ReportOptions {
  /** Audit lines after this position are reported; undefined: none. */
  readonly auditFrom: number | undefined;
  readonly metrics: WantedMetrics;
  /** True: the state of the data plane is reported, too. */
  readonly withState: boolean;
}

/** Names of metrics; `counts`: all counters and histograms; `all`: these and the gauges. */
export type WantedMetrics = readonly string[] | 'counts' | 'all';

/** The metrics of two reports in one. */
export function bothOf(one: WantedMetrics, other: WantedMetrics): WantedMetrics {
  if (one === other) return one;
  return typeof one === 'string' || typeof other === 'string' ? 'all' : [...new Set([...one, ...other])];
}

export interface DrainOptions extends ReportOptions {
  /** False: other workers serve on the port already. */
  readonly withDelay: boolean;
}

export interface WorkerReport {
  /** Undefined: it was not asked for. */
  readonly state: PlaneReport | undefined;
  readonly metrics: RegistrySnapshot;
  readonly lines: readonly AuditLine[];
  /** Refusals of clients, in the last report of a worker: the primary goes on with them. */
  readonly refusals: readonly CountedRefusal[];
  /** Position after these lines; undefined: none were asked for. */
  readonly auditPosition: number | undefined;
  /** The end of its audit log; undefined: none is written. */
  readonly auditHead: Head | undefined;
}

type Name = keyof WorkerFunctions;
type Body<Of extends Name> = Parameters<WorkerFunctions[Of]>[0];
type Result<Of extends Name> = Awaited<ReturnType<WorkerFunctions[Of]>>;

/** Calls the functions of one worker. */
export class WorkerCalls {
  readonly #calls: CallClient;

  constructor(port: ProcessPort) {
    this.#calls = new CallClient({ port, service: SERVICE });
  }

  /**
   * Rejects with the error of the function, when the process ends, and after `deadlineMs` milliseconds. Without a
   * deadline, a worker that hangs must be ended.
   */
  call<Of extends Name>(
    name: Of,
    body?: Body<Of>,
    deadlineMs = Number.POSITIVE_INFINITY,
  ): Promise<Result<Of>> {
    return this.#calls.call(name, body, deadlineMs) as Promise<Result<Of>>;
  }
}

/** Resolves when the process at the other end serves calls. What is sent earlier is lost. */
export function isServed(port: ProcessPort): Promise<void> {
  return new Promise((resolve) => {
    const stop = port.onMessage((message) => {
      if (!isReady(message)) return;
      stop();
      resolve();
    });
  });
}

function isReady(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'service' in message && message.service === READY;
}

/** Serves the calls of the primary. Both ends have the same protocol, which `open` checks. */
export function serveWorker(port: ProcessPort, functions: WorkerFunctions): void {
  const byName = new Map(Object.entries(functions) as [string, (body: unknown) => unknown][]);
  port.onMessage((message) => {
    const request = readRequest(SERVICE, message);
    if (request?.kind !== 'call') return;
    const { name, body } = request;
    void answerCall(port, SERVICE, request, () => {
      const serve = byName.get(name);
      if (serve === undefined) throw new Error('the worker does not know this function');
      return serve(body);
    });
  });
  port.post({ service: READY });
}
