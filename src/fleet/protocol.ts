import { type ReportOptions, WORKER_METHODS, type Worker, type WorkerReport } from '../app/worker.ts';
import { CallClient, methodsOf, type ProcessPort, serveCalls } from '../base/message-calls.ts';
import type { OpenAddress } from '../base/open-port.ts';
import type { TransferredSetup } from '../setup/transfer.ts';

/**
 * Version of what primary and workers call of each other. In an upgrade, they can be of different versions of the
 * program.
 */
export const PROTOCOL = 12;

/** Name of the service that each worker is for its primary. */
const SERVICE = 'worker';
/** Name in the message of a worker that serves calls from now on. */
const READY = 'worker ready';

/** Maximum time from the start of a process until its data plane is built, in milliseconds. */
export const OPEN_MS = 120_000;
/** Kill a worker that answers no `beat` for this long, in milliseconds. */
const HANG_MS = 5_000;

/** The life of a worker's process. Each method has a line in `LIFE_METHODS`. */
export interface WorkerLife {
  /** Builds the data plane. */
  open(start: WorkerStart): Promise<void>;
  /** Opens the ports that the workers share; resolves to their addresses, or why one cannot be opened. */
  listen(): Promise<readonly OpenAddress[] | ListenFailure>;
  /** Does nothing, which shows that the event loop turns. */
  beat(): Promise<void>;
  /** Builds another configuration beside the active one; resolves to the names of what changed. */
  prepare(setup: TransferredSetup): Promise<readonly string[]>;
  /** Drops what was prepared. */
  abandon(): Promise<void>;
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

export interface DrainOptions extends ReportOptions {
  /** False: other workers serve on the port already. */
  readonly withDelay: boolean;
}

/** As `WORKER_METHODS`. */
const LIFE_METHODS = {
  open: OPEN_MS,
  listen: Number.POSITIVE_INFINITY,
  beat: HANG_MS,
  prepare: Number.POSITIVE_INFINITY,
  abandon: Number.POSITIVE_INFINITY,
  commit: Number.POSITIVE_INFINITY,
  drain: Number.POSITIVE_INFINITY,
} as const satisfies Record<keyof WorkerLife, number>;

/** Calls one worker. A call rejects with the error of the method, when the process ends, and after its deadline. */
export function callsTo(port: ProcessPort): Worker & WorkerLife {
  return methodsOf<Worker & WorkerLife>(new CallClient({ port, service: SERVICE }), {
    ...WORKER_METHODS,
    ...LIFE_METHODS,
  });
}

/** Resolves when the process at the other end serves calls. What is sent earlier is lost. */
export function isServed(port: ProcessPort): Promise<void> {
  return new Promise((resolve) => {
    const stop = port.onMessage((message) => {
      if (Object(message).service !== READY) return;
      stop();
      resolve();
    });
  });
}

/**
 * Serves the calls of the primary. Both ends have the same protocol, which `open` checks. `plane` throws until it is
 * open.
 */
export function serveWorker(port: ProcessPort, life: WorkerLife, plane: () => Worker): void {
  serveCalls(port, SERVICE, (name) => {
    if (isNameIn(LIFE_METHODS, name)) return life[name].bind(life);
    if (!isNameIn(WORKER_METHODS, name)) return undefined;
    const open = plane();
    return open[name].bind(open);
  });
  port.post({ service: READY });
}

function isNameIn<T extends object>(methods: T, name: string): name is Extract<keyof T, string> {
  return Object.hasOwn(methods, name);
}
