import type { Clock } from '../base/clock.ts';
import { RollingCount } from '../base/rolling-count.ts';
import { circuitOpen } from '../handshake/errors.ts';

/** Failures in a row, of exchanges and checks, after which a healthy address is failing. */
const FAILURES_IN_A_ROW = 3;

export interface CircuitOptions {
  /** Share of failures in the window that opens the circuit, between 0 and 1. */
  readonly failures: number;
  /** The fewest exchanges in the window that can open it. */
  readonly minimum: number;
  /** In milliseconds. */
  readonly window: number;
  /** How long it stays open, in milliseconds. */
  readonly open: number;
  /** Statuses of responses that count as failures. */
  readonly statuses: readonly number[];
}

export interface HealthOptions {
  /** Milliseconds between two checks; undefined: none. */
  readonly interval: number | undefined;
  /** Target of the GET that a check sends; undefined: a check only connects. */
  readonly path?: string;
  /** How long an address must be healthy after a failure before requests prefer it again, in milliseconds. */
  readonly failback: number;
}

export type HealthState = 'unknown' | 'healthy' | 'failing';
export type CircuitState = 'closed' | 'open' | 'half-open';

/** The part of the state of an address that users see. */
export interface AddressStatus {
  readonly health: HealthState;
  readonly circuit: CircuitState;
}

/** The request of a client that tries whether the address is back. */
interface Trial {
  readonly client: string;
}

/** A client whose last exchange failed. While the circuit is not closed, one of its requests is sent at a time. */
interface RefusedClient {
  /** While the circuit is open, none is sent before this, on the clock of the process, in milliseconds. */
  readonly until: number;
  /** Undefined: none is under way. */
  trial: Trial | undefined;
}

/**
 * `failing`: requests prefer other addresses. `open`: it gets no request for a while, since most exchanges failed.
 * `half-open`: it gets one request of a client at a time, the trial, until one gets a response. `recovering`: the same,
 * but a check has succeeded since. A client whose own last exchange did not fail is refused in no phase: another one may
 * have opened the circuit by what it sends. A check closes no circuit: what it asks can work while requests time out, and
 * they would all come back at once.
 */
type Phase = 'unknown' | 'healthy' | 'failing' | 'open' | 'half-open' | 'recovering';

const STATUS: Readonly<Record<Phase, AddressStatus>> = {
  unknown: { health: 'unknown', circuit: 'closed' },
  healthy: { health: 'healthy', circuit: 'closed' },
  failing: { health: 'failing', circuit: 'closed' },
  open: { health: 'failing', circuit: 'open' },
  'half-open': { health: 'failing', circuit: 'half-open' },
  recovering: { health: 'healthy', circuit: 'half-open' },
};

/**
 * `response`, `failure`: of an exchange of a client request. `listed`: a response whose status counts as a failure.
 * `check`, `check-failed`: of a check. `in-a-row`: a failure that is the third one in a row, or a later one. `rate`: one
 * with which most exchanges of the window have failed. `trial`: a request is admitted after the time of an open circuit.
 */
type AddressEvent =
  | 'response'
  | 'listed'
  | 'failure'
  | 'check'
  | 'check-failed'
  | 'in-a-row'
  | 'rate'
  | 'trial';

/** All transitions. Other events change nothing, such as a late response to a request from before the circuit opened. */
const TRANSITIONS: Readonly<Record<Phase, Partial<Record<AddressEvent, Phase>>>> = {
  unknown: {
    response: 'healthy',
    listed: 'healthy',
    check: 'healthy',
    failure: 'failing',
    'check-failed': 'failing',
    rate: 'open',
  },
  healthy: { 'in-a-row': 'failing', rate: 'open' },
  failing: { response: 'healthy', listed: 'healthy', check: 'healthy', rate: 'open' },
  open: { trial: 'half-open', check: 'recovering' },
  'half-open': { response: 'healthy', check: 'recovering', failure: 'open', listed: 'open' },
  recovering: { response: 'healthy', failure: 'open', listed: 'open', 'in-a-row': 'half-open' },
};

/** `request`: the address answered one, or failed to; `connection`: one was made, or could not be. */
export type Evidence = 'request' | 'connection';

export interface StatusChange {
  readonly before: AddressStatus;
  readonly after: AddressStatus;
  /** The last failure; empty unless the address is failing. */
  readonly reason: string;
}

/**
 * What is known of one address of an upstream from client requests and checks, and which requests it gets. It gets each
 * result when the head comes or the exchange fails, so that a long body delays nothing (docs/develop/decisions/own-
 * circuit.md). Methods return the change that they caused.
 */
export class AddressState {
  readonly #circuit: CircuitOptions;
  readonly #health: HealthOptions;
  readonly #statuses: ReadonlySet<number>;
  readonly #clock: Clock;
  readonly #responses: RollingCount;
  readonly #failures: RollingCount;
  #phase: Phase = 'unknown';
  /** The part that users see. Only the state changes it. */
  status = STATUS.unknown;
  /** When the health that users see changed last. */
  #since: number;
  #wasFailing = false;
  #failuresInARow = 0;
  #lastFailureAt = 0;
  #lastFailure = '';
  /** The strongest evidence among the failures since the last success. */
  #failedBy: Evidence = 'connection';
  #openUntil = 0;
  readonly #refused = new Map<string, RefusedClient>();
  #hasTraffic = false;

  constructor(circuit: CircuitOptions, health: HealthOptions, clock: Clock) {
    this.#circuit = circuit;
    this.#health = health;
    this.#statuses = new Set(circuit.statuses);
    this.#clock = clock;
    this.#responses = new RollingCount(circuit.window);
    this.#failures = new RollingCount(circuit.window);
    this.#since = clock.now();
  }

  /** The last failure, for operators; empty unless the address is failing. */
  get reason(): string {
    return this.status.health === 'failing' ? this.#lastFailure : '';
  }

  /** Milliseconds since the health changed last. */
  get age(): number {
    return this.#clock.now() - this.#since;
  }

  /**
   * True if requests may prefer the address: it was never failing, or has been healthy for `failback`; without checks
   * also after this long without requests, since only a request can show that it is back.
   */
  get isSettled(): boolean {
    const { interval, failback } = this.#health;
    if (!this.#wasFailing) return true;
    if (this.status.health === 'healthy') return this.age >= failback;
    return interval === undefined && this.#msSinceFailure >= failback;
  }

  /** True if the last result was a failure, and the address is not failing yet. */
  get isInDoubt(): boolean {
    return this.#failuresInARow > 0 && this.status.health !== 'failing';
  }

  /** True if a request of this client would be admitted now. */
  isAdmitting(client: string): boolean {
    return this.#refused.get(client)?.trial === undefined && this.retryAfterMs(client) === 0;
  }

  /** Milliseconds until a request of this client may be admitted; 0: one may be now, or its trial is under way. */
  retryAfterMs(client: string): number {
    const until = this.#phase === 'open' ? this.#refused.get(client)?.until : undefined;
    return until === undefined ? 0 : Math.max(0, until - this.#clock.now());
  }

  /** True if client requests have shown the state since the last call. */
  takeTraffic(): boolean {
    const had = this.#hasTraffic;
    this.#hasTraffic = false;
    return had;
  }

  /**
   * Admits a request while the circuit is not closed, as the trial of its client. The caller calls `leave` when it is
   * over.
   * @throws GatewayError `upstream-circuit-open`
   */
  admit(request: Trial): StatusChange | undefined {
    if (this.status.circuit === 'closed') return undefined;
    const { client } = request;
    if (!this.isAdmitting(client)) throw circuitOpen(this.retryAfterMs(client));
    const refused = this.#refused.get(client);
    if (refused !== undefined) refused.trial = request;
    return this.#isOpenForItsTime ? undefined : this.#after('trial');
  }

  /** A request is over. If it was a trial and showed nothing, the next one of its client is another trial. */
  leave(request: Trial): void {
    const refused = this.#refused.get(request.client);
    if (refused?.trial === request) refused.trial = undefined;
  }

  /** An exchange of a request got a response. `client`: of the request, here and below. */
  responded(status: number, client: string): StatusChange | undefined {
    this.#hasTraffic = true;
    if (this.#statuses.has(status)) {
      this.#note('request', `The upstream responded with ${status} (circuit.statuses).`);
      this.#failuresInARow = 0;
      this.#refuse(client);
      return this.#countFailure() ?? this.#after('listed');
    }
    this.#failuresInARow = 0;
    // A late response to a request from before the circuit opened shows nothing.
    if (this.#phase !== 'open' || this.#refused.get(client)?.trial !== undefined)
      this.#refused.delete(client);
    if (this.status.circuit === 'closed') this.#responses.add(this.#clock.now());
    return this.#after('response');
  }

  /** An exchange of a request failed: no connection, a broken one, or a timeout. `reason`: for operators. */
  failed(evidence: Evidence, reason: string, client: string): StatusChange | undefined {
    this.#hasTraffic = true;
    this.#note(evidence, reason);
    this.#refuse(client);
    return this.#countFailure() ?? this.#after('failure') ?? this.#afterRow();
  }

  /**
   * A check succeeded. It changes nothing before the time of an open circuit has passed, and while a trial is under
   * way.
   */
  checked(evidence: Evidence): StatusChange | undefined {
    // A connection shows little while requests get no response over it.
    const isWeak = evidence === 'connection' && this.#failedBy === 'request';
    const isTooSoon = isWeak && this.#msSinceFailure < this.#health.failback;
    const isTrying = Array.from(this.#refused.values()).some(({ trial }) => trial !== undefined);
    const isNotWanted = isTooSoon || isTrying || this.#isOpenForItsTime;
    if (this.status.health === 'failing' && isNotWanted) return undefined;
    this.#failuresInARow = 0;
    return this.#after('check');
  }

  /** A check failed. It opens no circuit: a wrong `health.path` must not keep requests away. */
  checkFailed(evidence: Evidence, reason: string): StatusChange | undefined {
    this.#note(evidence, reason);
    return this.#after('check-failed') ?? this.#afterRow();
  }

  get #msSinceFailure(): number {
    return this.#clock.now() - this.#lastFailureAt;
  }

  #note(evidence: Evidence, reason: string): void {
    if (this.#failuresInARow === 0 || evidence === 'request') this.#failedBy = evidence;
    this.#failuresInARow += 1;
    this.#lastFailureAt = this.#clock.now();
    this.#lastFailure = reason;
  }

  get #isOpenForItsTime(): boolean {
    return this.#phase === 'open' && this.#clock.now() < this.#openUntil;
  }

  #refuse(client: string): void {
    const known = this.#refused.get(client);
    // Failures of requests from before the circuit opened do not put its time off.
    if (this.#phase === 'open' && known !== undefined && known.trial === undefined) return;
    this.#refused.set(client, { until: this.#clock.now() + this.#circuit.open, trial: undefined });
  }

  /** Counts a failed exchange while the circuit is closed. */
  #countFailure(): StatusChange | undefined {
    if (this.status.circuit !== 'closed') return undefined;
    const now = this.#clock.now();
    this.#failures.add(now);
    const failed = this.#failures.sum(now);
    const all = failed + this.#responses.sum(now);
    const { minimum, failures } = this.#circuit;
    return all >= minimum && failed >= all * failures ? this.#after('rate') : undefined;
  }

  #afterRow(): StatusChange | undefined {
    return this.#failuresInARow >= FAILURES_IN_A_ROW ? this.#after('in-a-row') : undefined;
  }

  #after(event: AddressEvent): StatusChange | undefined {
    const from = this.#phase;
    const to = TRANSITIONS[from][event];
    if (to === undefined) return undefined;
    const before = STATUS[from];
    const after = STATUS[to];
    const now = this.#clock.now();
    this.#phase = to;
    this.status = after;
    if (after.health !== before.health) this.#since = now;
    this.#wasFailing ||= after.health === 'failing';
    if (to === 'open') this.#openUntil = now + this.#circuit.open;
    if (before.circuit !== 'closed' && after.circuit === 'closed') {
      this.#responses.clear();
      this.#failures.clear();
      this.#refused.clear();
    }
    return { before, after, reason: this.reason };
  }
}
