import {
  type ReportOptions,
  type WantedMetrics,
  WORKER_METHODS,
  type Worker,
  type WorkerReport,
} from '../app/worker.ts';
import { answerCall, CallClient, type ProcessPort, readRequest } from '../base/message-calls.ts';
import type { OpenAddress } from '../base/open-port.ts';
import type { TransferredSetup } from '../setup/transfer.ts';

/** Version of what primary and workers call of each other. In an upgrade, they can be of different versions of the program. */
export const PROTOCOL = 8;

/** Name of the service that each worker is for its primary. */
const SERVICE = 'worker';
/** Name in the message of a worker that serves calls from now on. */
const READY = 'worker ready';

/** The life of a worker's process. */
export interface WorkerLife {
  /** Builds the data plane. */
  open(start: WorkerStart): Promise<void>;
  /** Opens the ports that the workers share; resolves to their addresses, or why one cannot be opened. */
  listen(): Promise<readonly OpenAddress[] | ListenFailure>;
  /** Does nothing, which shows that the event loop turns. */
  beat(): void;
  /** Builds another configuration beside the active one; resolves to the names of what changed. */
  prepare(setup: TransferredSetup): Promise<readonly string[]>;
  /** Drops what was prepared. */
  abandon(): void;
  /** Activates at once what was prepared; resolves when credentials and limits are applied. */
  commit(): Promise<void>;
  /** Drains and closes everything; resolves to the last report. */
  drain(options: DrainOptions): Promise<WorkerReport>;
}

interface WorkerStart {
  readonly protocol: number;
  /** Names the audit folder of this worker; no other process has the same. */
  readonly number: number;
  /** Number of workers, among which limits of the whole gateway are divided. */
  readonly workers: number;
  readonly setup: TransferredSetup;
}

interface ListenFailure {
  readonly message: string;
  /** True: the message names the key of the configuration and the remedy. */
  readonly isPortError: boolean;
}

/** The metrics of two reports in one. */
export function bothOf(one: WantedMetrics, other: WantedMetrics): WantedMetrics {
  if (one === other) return one;
  return typeof one === 'string' || typeof other === 'string' ? 'all' : [...new Set([...one, ...other])];
}

export interface DrainOptions extends ReportOptions {
  /** False: other workers serve on the port already. */
  readonly withDelay: boolean;
}

type Name = keyof WorkerLife;
type Body<Of extends Name> = Parameters<WorkerLife[Of]>[0];
type Result<Of extends Name> = Awaited<ReturnType<WorkerLife[Of]>>;

/** Calls one worker. */
export class WorkerCalls {
  /** Each call rejects with the error of the method, when the process ends, and after its deadline. */
  readonly plane: Worker;
  readonly #calls: CallClient;

  constructor(port: ProcessPort) {
    const calls = new CallClient({ port, service: SERVICE });
    this.#calls = calls;
    const methods = Object.entries(WORKER_METHODS).map(([name, deadlineMs]) => [
      name,
      (body: unknown) => calls.call(name, body, deadlineMs),
    ]);
    this.plane = Object.fromEntries(methods);
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

/**
 * Serves the calls of the primary. Both ends have the same protocol, which `open` checks. `plane` throws until it is
 * open.
 */
export function serveWorker(port: ProcessPort, life: WorkerLife, plane: () => Worker): void {
  const methods = Object.keys(WORKER_METHODS) as (keyof Worker)[];
  const byName = new Map<string, (body: never) => unknown>([
    ...Object.entries(life),
    ...methods.map((name) => [name, (body: never) => plane()[name](body)] as const),
  ]);
  port.onMessage((message) => {
    const request = readRequest(SERVICE, message);
    if (request?.kind !== 'call') return;
    const { name, body } = request;
    void answerCall(port, SERVICE, request, () => {
      const serve = byName.get(name);
      if (serve === undefined) throw new Error('the worker does not know this function');
      return serve(body as never);
    });
  });
  port.post({ service: READY });
}
