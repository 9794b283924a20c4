import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { ServiceManager } from '../app/reloads.ts';
import { timerDelay } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';

const execute = promisify(execFile);

/** Maximum time of one message, in milliseconds. */
const TIMEOUT_MS = 5_000;
/** Time until a message of the watchdog that failed is sent again, in milliseconds. */
const RETRY_MS = 1_000;

type Environment = Readonly<Record<string, string | undefined>>;

/** Returns the systemd that has started this process; undefined if it wants no messages. */
export function systemdOf(environment: Environment, log: Log): ServiceManager | undefined {
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
