import cluster, { type Worker as ClusterWorker } from 'node:cluster';
import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type ReportOptions,
  type WantedMetrics,
  type Worker,
  WorkerError,
  type WorkerReport,
} from '../app/worker.ts';
import type { Head } from '../audit/seal.ts';
import { inTime, timerDelay } from '../base/clock.ts';
import { ignoreAbort } from '../base/expected-errors.ts';
import { ipcPort, NO_REPLY, type ProcessPort } from '../base/message-calls.ts';
import { type OpenAddress, PortError } from '../base/open-port.ts';
import { reportError } from '../base/report-error.ts';
import type { WorkerState } from '../control/state.ts';
import type { TransferredSetup } from '../setup/transfer.ts';
import { callsTo, isServed, OPEN_MS, PROTOCOL, type WorkerLife } from './protocol.ts';

/** Interval of the calls that show whether the worker answers, in milliseconds. */
const BEAT_MS = 1_000;
/** Unanswered pings after which a worker counts as silent. */
const SILENT_BEATS = 2;
/** Maximum wait for a report, in milliseconds; the one before is used then. */
const REPORT_MS = 1_000;

/** Contents of a report. `withLines`: new audit lines. */
interface Wanted extends Omit<ReportOptions, 'auditFrom'> {
  readonly withLines: boolean;
}

export const STATE_ONLY: Wanted = { metrics: [], withState: true, withLines: false };

/** The part of a report that counts once, at the next collection. */
type Collected = Pick<WorkerReport, 'metrics' | 'lines' | 'refusals' | 'keysSeen'>;

/** A report that is to be asked for when the one before has come. */
interface QueuedReport {
  wanted: Wanted;
  done: Promise<void>;
}

/**
 * Starts a process of the program's present version.
 * @throws WorkerError if the program is not there; the process would print a stack trace
 */
export function forkWorker(): ClusterWorker {
  const { exec } = cluster.settings;
  // Node.js finds the program without its extension, too.
  if (exec !== undefined && !existsSync(exec) && !existsSync(`${exec}.js`))
    throw new WorkerError(`a worker cannot be started: ${exec} does not exist; install the program there`);
  return cluster.fork();
}

/** The primary's end of one worker. */
export class RemoteWorker {
  /** Names the worker among those that run; no other process uses the same audit folder. */
  readonly number: number;
  readonly pid: number;
  /** The channel to the worker. */
  readonly port: ProcessPort;
  /** Resolves to how the process ended, when it has. */
  readonly ended: Promise<string>;
  /** The calls to it: of its life, and of its data plane once it is open. */
  readonly calls: Worker & WorkerLife;
  readonly #worker: ClusterWorker;
  readonly #isServed: Promise<void>;
  /** Why the program could not be loaded; undefined: it was, or its process has not said. */
  #startError: string | undefined;
  #hangs = false;
  /** Calls in a row that it has not answered yet. */
  #unanswered = 0;
  #silence = Promise.withResolvers<void>();
  /** The last steps of `inTurn`. */
  #turn: Promise<unknown> = Promise.resolve();
  #beats: NodeJS.Timeout | undefined;
  #auditFrom = 0;
  #auditHead: Head | undefined;
  #state: WorkerState | undefined;
  #reporting: Promise<void> = Promise.resolve();
  #queued: QueuedReport | undefined;
  #received: Collected[] = [];
  #isGone = false;
  #hasEnded = false;

  constructor(worker: ClusterWorker, number: number) {
    this.#worker = worker;
    this.number = number;
    const { process: child } = worker;
    this.pid = child.pid ?? 0;
    this.port = ipcPort(child);
    this.calls = callsTo(this.port);
    this.#isServed = isServed(this.port);
    child.on('message', (message: unknown) => {
      this.#startError ??= startErrorIn(message);
    });
    this.ended = new Promise((resolve) => {
      worker.once('disconnect', () => {
        this.#isGone = true;
      });
      const end = (how: string): void => {
        this.#isGone = true;
        this.#hasEnded = true;
        clearInterval(this.#beats);
        resolve(how);
      };
      worker.once('exit', (code, signal) => end(signal ? `signal ${signal}` : `exit code ${code}`));
      // A process that cannot be started does not exit.
      worker.on('error', ({ message }) => {
        if (child.pid === undefined) end(message);
      });
    });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** True if it takes no more calls. Its process ends soon, or has ended. */
  get isGone(): boolean {
    return this.#isGone;
  }

  /** True if it gave no sign of life, and is killed for that. */
  get hangs(): boolean {
    return this.#hangs;
  }

  /** Resolves when it has not answered for a second or two: callers should not wait for it. */
  get silent(): Promise<void> {
    return this.#silence.promise;
  }

  /** The latest end of its audit log; undefined: none was reported. */
  get auditHead(): Head | undefined {
    return this.#auditHead;
  }

  /** The latest state; undefined: none was reported. */
  get state(): WorkerState | undefined {
    return this.#state;
  }

  /**
   * Builds the worker's data plane.
   * @throws Error if it cannot be built, or the process is of another version or ends
   */
  async open(setup: TransferredSetup, workers: number): Promise<void> {
    // A process that never serves calls does not answer this one in time either.
    const started = new AbortController();
    const how = await Promise.race([
      this.#isServed,
      this.ended,
      delay(OPEN_MS, undefined, { signal: started.signal }).catch(ignoreAbort),
    ]);
    started.abort();
    if (typeof how === 'string') {
      throw this.#startFailure(this.#startError ?? `its process has ended with ${how}`);
    }
    const start = { protocol: PROTOCOL, number: this.number, workers, setup };
    await this.calls.open(start).catch(async (error: Error) => {
      throw (await this.#endDuringStart(error)) ?? this.#startFailure(error.message, error);
    });
    this.#beats = setInterval(() => void this.#beat(), BEAT_MS).unref();
  }

  /** @throws Error if a port cannot be opened, or the process ends */
  async listen(): Promise<readonly OpenAddress[]> {
    const listening = await this.calls.listen().catch(async (error: Error) => {
      throw (await this.#endDuringStart(error)) ?? error;
    });
    if (!('message' in listening)) return listening;
    throw listening.isPortError ? new PortError(listening.message) : new Error(listening.message);
  }

  #startFailure(reason: string, cause?: Error): WorkerError {
    return new WorkerError(`worker ${this.number} cannot be started: ${reason}`, { cause });
  }

  /** The error of a call that failed since the process ended by itself, with its signal; undefined: it did not. */
  async #endDuringStart(error: Error): Promise<WorkerError | undefined> {
    if (!this.#isGone || this.#hangs) return undefined;
    this.kill();
    return this.#startFailure(`its process has ended with ${await this.ended}`, error);
  }

  /**
   * Runs the steps of an activation after those of the one before: a worker keeps what one has prepared. Also what the
   * commit of one under way would undo.
   */
  inTurn<T>(steps: () => Promise<T>): Promise<T> {
    const done = Promise.allSettled([this.#turn]).then(steps);
    this.#turn = done;
    return done;
  }

  /** Begins something without waiting for its result; it ends with the process. */
  begin(act: (calls: Worker & WorkerLife) => Promise<void>): void {
    act(this.calls).catch(this.#ignoreEnd);
  }

  /** Asks for a report; one that takes too long is received later. Never rejects. */
  async update(wanted: Wanted): Promise<void> {
    await inTime(this.#ask(wanted), REPORT_MS);
  }

  /** Returns the reports received since the last call that have anything to collect, oldest first. */
  takeReports(): readonly Collected[] {
    const received = this.#received;
    this.#received = [];
    return received;
  }

  /**
   * Lets the exchanges under way end; resolves when the process has ended, which is killed after `limitMs`, to what
   * went wrong, if anything did.
   */
  async drain(withDelay: boolean, limitMs: number): Promise<string | undefined> {
    let problem: string | undefined;
    const timer = setTimeout(() => {
      problem = 'it took too long, and was killed';
      this.kill();
    }, timerDelay(limitMs));
    // A report that comes after the last one would bring back older counts.
    await inTime(this.#reporting, REPORT_MS);
    await this.calls
      .drain({ withDelay, auditFrom: this.#auditFrom, metrics: 'all', withState: true })
      .then((report) => this.#accept(report))
      .catch((error: Error) => {
        problem ??= error.message;
      });
    clearInterval(this.#beats);
    await this.ended;
    clearTimeout(timer);
    return problem;
  }

  kill(): void {
    this.#worker.kill('SIGKILL');
  }

  async #beat(): Promise<void> {
    this.#unanswered += 1;
    if (this.#unanswered === SILENT_BEATS) this.#silence.resolve();
    try {
      await this.calls.beat();
      if (this.#unanswered >= SILENT_BEATS) this.#silence = Promise.withResolvers();
      this.#unanswered = 0;
    } catch (error) {
      const isLate = error instanceof Error && error.message.endsWith(NO_REPLY);
      if (!isLate || this.#hasEnded || this.#hangs) return;
      this.#hangs = true;
      this.kill();
    }
  }

  /** At most one report is under way, and one waits, for everything that was asked for meanwhile. */
  #ask(wanted: Wanted): Promise<void> {
    const waiting = this.#queued;
    if (waiting !== undefined) {
      waiting.wanted = {
        metrics: unionOfMetrics(wanted.metrics, waiting.wanted.metrics),
        withState: wanted.withState || waiting.wanted.withState,
        withLines: wanted.withLines || waiting.wanted.withLines,
      };
      return waiting.done;
    }
    const queued: QueuedReport = { wanted, done: this.#reporting };
    queued.done = this.#reporting.then(() => this.#update(queued));
    this.#queued = queued;
    this.#reporting = queued.done;
    return queued.done;
  }

  async #update({ wanted: { metrics, withState, withLines } }: QueuedReport): Promise<void> {
    this.#queued = undefined;
    const auditFrom = withLines ? this.#auditFrom : undefined;
    await this.calls
      .report({ auditFrom, metrics, withState })
      .then((report) => this.#accept(report), this.#ignoreEnd);
  }

  /** For calls without a result that are lost when the process ends. */
  readonly #ignoreEnd = (error: unknown): void => {
    if (!this.#isGone) reportError(error);
  };

  #accept(report: WorkerReport): void {
    const { auditPosition = this.#auditFrom, metrics, lines, refusals, keysSeen } = report;
    // While the worker drains, other reports have lines that its last one has, too.
    const known = Math.max(0, this.#auditFrom - (auditPosition - lines.length));
    this.#auditFrom = Math.max(this.#auditFrom, auditPosition);
    this.#auditHead = report.auditHead ?? this.#auditHead;
    this.#state = report.state ?? this.#state;
    // After the end, its counts are in the sums already.
    if (this.#hasEnded) return;
    // Readiness asks for states alone, any number of times between two collections.
    if (metrics.length === 0 && lines.length === 0 && refusals.length === 0) return;
    this.#received.push({ metrics, lines: lines.slice(known), refusals, keysSeen });
  }
}

/** The reason that `digest-gateway.js` sends if it cannot load the program. */
function startErrorIn(message: unknown): string | undefined {
  if (typeof message !== 'object' || message === null || !('startError' in message)) return undefined;
  return `the program cannot be loaded: ${String(message.startError)}`;
}

/** The metrics of two reports in one. */
export function unionOfMetrics(one: WantedMetrics, other: WantedMetrics): WantedMetrics {
  if (one === other) return one;
  return typeof one === 'string' || typeof other === 'string' ? 'all' : [...new Set([...one, ...other])];
}
