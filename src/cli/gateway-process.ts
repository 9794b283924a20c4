import { execFile } from 'node:child_process';
import cluster from 'node:cluster';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { App, type AppDeps } from '../app/app.ts';
import { openAuditLog, type ProcessParts } from '../app/compose.ts';
import { DataPlane } from '../app/data-plane.ts';
import type { ServiceManager } from '../app/reloads.ts';
import { processOf, replicaOf } from '../audit/replica-name.ts';
import { foldersIn } from '../audit/segments/segment.ts';
import { timerDelay } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';
import { addressName, type OpenAddress, socketPath } from '../base/open-port.ts';
import { primaryChallenges } from '../challenges/store/channel.ts';
import { IdleLogs } from '../fleet/audit-logs.ts';
import { Fleet } from '../fleet/fleet.ts';
import { primaryLimits } from '../limits/channel.ts';
import type { AppSetup } from '../setup/setup.ts';
import { type Io, processContext } from './io.ts';
import { processParts } from './process-parts.ts';

export interface GatewayProcess {
  readonly app: App;
  readonly log: Log;
  /** Replaces the worker processes; undefined: this process serves itself. */
  readonly upgrade: (() => Promise<void>) | undefined;
  /** Sends the last traces and stops the SDK. */
  readonly stopTracing: () => Promise<void>;
}

/** Creates the gateway of this process, with a log on stderr; it has workers if the configuration asks for them. */
export async function gatewayProcess(
  io: Io,
  setup: AppSetup,
  reloading: Pick<AppDeps, 'source' | 'watchFile'> = {},
): Promise<GatewayProcess> {
  const parts = await processParts(io, setup);
  if (setup.audit === undefined) parts.log.warn('no audit section in the configuration; nothing is recorded');
  const { log, stopTracing } = parts;
  const fleet = fleetOf(setup, parts);
  // dist/ is two folders up from src/cli/ in a checkout, and from dist/cli/ in the package.
  const consoleFolder = fileURLToPath(new URL('../../dist/console', import.meta.url));
  const { uid } = processContext(io);
  const serviceManager = systemdOf(io.env, log);
  const workers = fleet ?? new DataPlane(setup, parts);
  const app = new App(setup, { ...parts, workers, uid, consoleFolder, serviceManager, ...reloading });
  return { app, log, upgrade: fleet && (() => fleet.upgrade()), stopTracing };
}

/** Creates the workers that the configuration asks for; undefined: it asks for none. */
function fleetOf(setup: AppSetup, parts: ProcessParts): Fleet | undefined {
  const { workers } = setup.config;
  if (workers === 1) return undefined;
  // Workers accept from one socket. One that hangs accepts nothing, so no connection is lost to it. `setupPrimary`
  // freezes the policy.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  // The name as it was given: after an upgrade, a symbolic link in it leads to the new version.
  cluster.setupPrimary({ exec: process.argv[1], args: ['worker'], serialization: 'advanced' });
  const { clock } = parts;
  return new Fleet(setup, {
    ...parts,
    workers: workers === 'auto' ? availableParallelism() : workers,
    idleLogs: idleLogs(setup, parts.log),
    stores: [primaryChallenges(clock), primaryLimits({ now: () => clock.now(), epoch: () => Date.now() })],
  });
}

function idleLogs({ audit }: AppSetup, log: Log): IdleLogs {
  return new IdleLogs({
    log,
    list: async () => {
      if (audit === undefined) return [];
      const warn = ({ message: reason }: Error): void =>
        log.warn({ reason }, 'the audit log of a process cannot be reached; it is left as it is');
      const names = await foldersIn(audit.directory, audit.replica, warn);
      return names.map((name) => processOf(name).worker).filter((worker) => worker > 0);
    },
    open: (number) => openAuditLog(audit && { ...audit, replica: replicaOf(audit.replica, number) }, log),
  });
}

/** Formats an address as a URL; that of a UNIX socket stays as it is. */
export function urlOf(address: OpenAddress, scheme: 'http' | 'https' = 'http'): string {
  const name = addressName(address);
  return socketPath(address.address) === undefined ? `${scheme}://${name}` : name;
}

const execute = promisify(execFile);

/** Maximum time of one message, in milliseconds. */
const TIMEOUT_MS = 5_000;
/** Time until a message of the watchdog that failed is sent again, in milliseconds. */
const RETRY_MS = 1_000;

type Environment = Readonly<Record<string, string | undefined>>;

/** Returns the systemd that has started this process; undefined if it wants no messages. */
function systemdOf(environment: Environment, log: Log): ServiceManager | undefined {
  const { NOTIFY_SOCKET } = environment;
  return NOTIFY_SOCKET ? new Systemd(environment, log) : undefined;
}

/**
 * Tells systemd the states of this process (sd_notify(3)), and that its event loop turns (`WatchdogSec`). Messages go
 * through the program `systemd-notify`, because Node.js has no datagram sockets of Unix.
 */
class Systemd implements ServiceManager {
  readonly #environment: Environment;
  readonly #log: Log;
  /** Undefined without a watchdog. */
  readonly #watchdogMs: number | undefined;
  /** States arrive in their order. */
  #last: Promise<unknown> = Promise.resolve();
  #isReady = false;
  #hasFailed = false;

  constructor(environment: Environment, log: Log) {
    this.#environment = environment;
    this.#log = log;
    this.#watchdogMs = watchdogOf(environment);
  }

  ready(status: string): void {
    this.#tell('READY=1', statusLine(status));
    if (!this.#isReady) this.#keepWatchdog();
    this.#isReady = true;
  }

  reloading(): void {
    // Type=notify-reload compares this with the time of its signal.
    const now = process.hrtime.bigint() / 1_000n;
    this.#tell('RELOADING=1', `MONOTONIC_USEC=${now}`, statusLine('reloading the configuration'));
  }

  stopping(): void {
    this.#tell('STOPPING=1', statusLine('draining'));
  }

  #tell(...assignments: string[]): void {
    this.#last = this.#last.then(() => this.#send(assignments));
  }

  /** Resolves to false if the message could not be sent. */
  async #send(assignments: readonly string[]): Promise<boolean> {
    const { NOTIFY_SOCKET, PATH } = this.#environment;
    try {
      // Not the whole environment, which may hold secrets.
      await execute('systemd-notify', assignments, { env: { NOTIFY_SOCKET, PATH }, timeout: TIMEOUT_MS });
      return true;
    } catch (error) {
      const reason = messageOf(error);
      if (!this.#hasFailed)
        this.#log.warn({ reason }, 'systemd-notify failed; systemd does not see the state');
      this.#hasFailed = true;
      return false;
    }
  }

  /** Sends two messages in the time of the watchdog, so that one may be late. */
  #keepWatchdog(): void {
    if (this.#watchdogMs === undefined) return;
    const halfMs = this.#watchdogMs / 2;
    const next = (ms: number): void => {
      setTimeout(async () => {
        const isSent = await this.#send(['WATCHDOG=1']);
        next(isSent ? halfMs : Math.min(RETRY_MS, halfMs));
      }, timerDelay(ms)).unref();
    };
    next(halfMs);
  }
}

/** Returns the time of the watchdog in milliseconds; undefined if there is none for this process. */
function watchdogOf({ WATCHDOG_USEC, WATCHDOG_PID }: Environment): number | undefined {
  const ms = Number(WATCHDOG_USEC) / 1_000;
  const isOurs = WATCHDOG_PID === undefined || WATCHDOG_PID === String(process.pid);
  return isOurs && ms > 0 ? ms : undefined;
}

/** Makes one line: the next one would be another assignment. */
function statusLine(status: string): string {
  return `STATUS=${status.replaceAll(/\s+/g, ' ')}`;
}
