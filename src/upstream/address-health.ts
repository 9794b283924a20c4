import type { Clock } from '../base/clock.ts';

/** Failures in a row, of exchanges and checks, after which a healthy address counts as failing. */
const FAILURES = 3;

export type HealthState = 'unknown' | 'healthy' | 'failing';

/** `request`: the address answered one, or failed to; `connection`: one was made, or could not be. */
export type Evidence = 'request' | 'connection';

export interface HealthOptions {
  /** Milliseconds between two checks; undefined: none. */
  readonly interval: number | undefined;
  /** Target of the GET that a check sends; undefined: a check only connects. */
  readonly path?: string;
  /** How long an address must be healthy after a failure before requests prefer it again, in milliseconds. */
  readonly failback: number;
}

/** The state of an address changed. */
export interface HealthChange {
  readonly state: HealthState;
  /** Why it is failing; empty otherwise. */
  readonly reason: string;
  /** True if the state was unknown before. */
  readonly isFirst: boolean;
}

/** Whether one address of an upstream serves, from the results of client requests and of checks. */
export class AddressHealth {
  readonly #clock: Clock;
  readonly #options: HealthOptions;
  readonly #onChange: (change: HealthChange) => void;
  #state: HealthState = 'unknown';
  #reason = '';
  #since: number;
  /** Failures in a row. */
  #failures = 0;
  /** The strongest evidence among the failures since the last success. */
  #failed: Evidence = 'connection';
  #lastFailure = 0;
  #wasFailing = false;
  #hasTraffic = false;

  /** @param onChange called after each change of the state */
  constructor(options: HealthOptions, clock: Clock, onChange: (change: HealthChange) => void) {
    this.#options = options;
    this.#clock = clock;
    this.#onChange = onChange;
    this.#since = clock.now();
  }

  get state(): HealthState {
    return this.#state;
  }

  /** Why it is failing; empty otherwise. */
  get reason(): string {
    return this.#reason;
  }

  /** Milliseconds since the state changed last. */
  get age(): number {
    return this.#clock.now() - this.#since;
  }

  /**
   * True if requests may prefer the address: it was never failing, or has been healthy for `failback`; without checks
   * also if it has been left alone for so long, since only a request can show that it is back.
   */
  get isSettled(): boolean {
    const { interval, failback } = this.#options;
    if (!this.#wasFailing) return true;
    if (this.#state === 'healthy') return this.age >= failback;
    return interval === undefined && this.#clock.now() - this.#lastFailure >= failback;
  }

  /** True if the last result was a failure. */
  get hasFailed(): boolean {
    return this.#failures > 0;
  }

  /** True if client requests have shown the state since the last call. */
  takeTraffic(): boolean {
    const had = this.#hasTraffic;
    this.#hasTraffic = false;
    return had;
  }

  /** An exchange of a client request got a response. */
  responded(): void {
    this.#hasTraffic = true;
    if (this.#state !== 'healthy') this.#change('healthy', '');
    this.#failures = 0;
  }

  /** An exchange of a client request failed. `reason` is a sentence for operators. */
  failed(evidence: Evidence, reason: string): void {
    this.#hasTraffic = true;
    this.#fail(evidence, reason);
  }

  /** A check succeeded, by what it saw. */
  checked(evidence: Evidence): void {
    // A connection shows little while requests get no response over it.
    const isWeak = evidence === 'connection' && this.#failed === 'request';
    if (this.#state === 'failing' && isWeak && this.#clock.now() - this.#lastFailure < this.#options.failback)
      return;
    this.#failures = 0;
    if (this.#state !== 'healthy') this.#change('healthy', '');
  }

  /** A check failed. */
  checkFailed(evidence: Evidence, reason: string): void {
    this.#fail(evidence, reason);
  }

  #fail(evidence: Evidence, reason: string): void {
    if (this.#failures === 0 || evidence === 'request') this.#failed = evidence;
    this.#failures += 1;
    this.#lastFailure = this.#clock.now();
    if (this.#state === 'failing') this.#reason = reason;
    else if (this.#state === 'unknown' || this.#failures >= FAILURES) this.#change('failing', reason);
  }

  #change(state: HealthState, reason: string): void {
    const isFirst = this.#state === 'unknown';
    this.#state = state;
    this.#reason = reason;
    this.#since = this.#clock.now();
    this.#wasFailing ||= state === 'failing';
    this.#onChange({ state, reason, isFirst });
  }
}
