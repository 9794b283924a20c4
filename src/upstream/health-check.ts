import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { expectGatewayError } from '../base/expected-errors.ts';
import { fieldValues } from '../base/raw-headers.ts';
import { reportError } from '../base/report-error.ts';
import { parseChallenges } from '../digest/challenge.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Connections } from '../transport/connections.ts';
import type { AddressHealth, Evidence } from './address-health.ts';

/** The least time between two checks of this process, in milliseconds, so that thousands of addresses take no core. */
const SPACING_MS = 50;
/** The longest time to the first check, and to the next one after a failure, in milliseconds. */
const SOON_MS = 1_000;

/** Spreads the checks of all addresses of this process. */
export class CheckPace {
  readonly #clock: Clock;
  #next = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds that the next check waits for its turn. */
  delay(): number {
    const now = this.#clock.now();
    const at = Math.max(now, this.#next);
    this.#next = at + SPACING_MS;
    return at - now;
  }
}

/** The reason with which a check is ended that needs no more. */
const ENDED = new GatewayError('draining', 'The health check has ended.');

type CheckedConnections = Pick<Connections, 'connect' | 'check'>;

/** Checks one address again and again while no client request shows whether it serves. It never authenticates. */
export class HealthCheck {
  readonly #interval: number;
  readonly #path: string | undefined;
  readonly #health: AddressHealth;
  readonly #pace: CheckPace;
  readonly #connections: CheckedConnections;
  readonly #cancellation = new Cancellation();
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param interval in milliseconds
   * @param path target of the GET that a check sends; undefined: a check only connects
   */
  constructor(
    interval: number,
    path: string | undefined,
    connections: CheckedConnections,
    health: AddressHealth,
    pace: CheckPace,
  ) {
    this.#interval = interval;
    this.#path = path;
    this.#connections = connections;
    this.#health = health;
    this.#pace = pace;
    this.#schedule(Math.random() * Math.min(interval, SOON_MS));
  }

  /** Ends the checks, and the one under way. */
  close(): void {
    clearTimeout(this.#timer);
    this.#cancellation.cancel(ENDED);
  }

  get #isClosed(): boolean {
    return this.#cancellation.reason !== undefined;
  }

  #schedule(ms: number): void {
    this.#timer = setTimeout(() => this.#wait(), ms).unref();
  }

  #wait(): void {
    if (this.#health.takeTraffic()) this.#again();
    else this.#timer = setTimeout(() => this.#check().catch(reportError), this.#pace.delay()).unref();
  }

  #again(): void {
    const interval = this.#interval;
    const isSoon = this.#health.hasFailed && this.#health.state !== 'failing';
    // Replicas that started together do not check together for ever.
    const jitter = 0.9 + Math.random() * 0.2;
    if (!this.#isClosed) this.#schedule((isSoon ? Math.min(interval, SOON_MS) : interval) * jitter);
  }

  async #check(): Promise<void> {
    const path = this.#path;
    const evidence: Evidence = path === undefined ? 'connection' : 'request';
    try {
      const problem = await this.#problem(path).catch((error) => expectGatewayError(error).detail);
      if (this.#isClosed) return;
      if (problem === undefined) this.#health.checked(evidence);
      else this.#health.checkFailed(evidence, problem);
    } finally {
      this.#again();
    }
  }

  /**
   * Resolves to what is wrong with the address; undefined: nothing.
   * @throws GatewayError if there is no connection, or no response
   */
  async #problem(path: string | undefined): Promise<string | undefined> {
    if (path === undefined) {
      await this.#connections.connect();
      return undefined;
    }
    const { status, headers } = await this.#request(path);
    if (status === 401) {
      const isDigest = parseChallenges(fieldValues(headers, 'www-authenticate')).length > 0;
      return isDigest ? undefined : `The upstream answers 401 without a Digest challenge (health.path).`;
    }
    return status < 400 ? undefined : `The upstream answers ${status} (health.path).`;
  }

  /** Sends a GET without authentication, and reads no body but that of a 401. */
  async #request(target: string): Promise<UpstreamResponse> {
    const message = { method: 'GET', target, headers: [], body: null };
    const cancellation = this.#cancellation;
    const response = await this.#connections.check({ ...message, client: '', cancellation });
    if (response.kind === 'lost') throw response.error;
    if (response.status === 401) await response.discard();
    else response.abandon();
    return response;
  }
}
