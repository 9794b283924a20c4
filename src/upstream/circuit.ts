import type { Clock } from '../base/clock.ts';
import { RollingCount } from '../base/rolling-count.ts';

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

/** `half-open`: one request may try whether the upstream is back. */
export type CircuitState = 'closed' | 'open' | 'half-open';

/**
 * Keeps requests from an upstream address whose exchanges fail. It is told of each exchange when its head or its
 * failure comes, so that a long body delays no verdict; libraries judge a promise, which ends with the body
 * (docs/decisions/own-circuit.md).
 */
export class Circuit {
  readonly #options: CircuitOptions;
  readonly #statuses: ReadonlySet<number>;
  readonly #clock: Clock;
  readonly #onChange: (state: CircuitState) => void;
  readonly #responses: RollingCount;
  readonly #failures: RollingCount;
  #state: CircuitState = 'closed';
  #openUntil = 0;
  #trials = 0;
  /** Number of the trial under way; undefined: none is. */
  #trial: number | undefined;

  /** @param onChange called after each change of the state */
  constructor(options: CircuitOptions, clock: Clock, onChange: (state: CircuitState) => void) {
    this.#options = options;
    this.#statuses = new Set(options.statuses);
    this.#clock = clock;
    this.#onChange = onChange;
    this.#responses = new RollingCount(options.window);
    this.#failures = new RollingCount(options.window);
  }

  get state(): CircuitState {
    return this.#state;
  }

  /** True if a request would be admitted now. */
  get isAdmitting(): boolean {
    return this.#state === 'closed' || (this.#trial === undefined && this.retryAfterMs === 0);
  }

  /** Milliseconds until a request may be admitted; 0: one may be now, or a trial is under way. */
  get retryAfterMs(): number {
    return this.#state === 'open' ? Math.max(0, this.#openUntil - this.#clock.now()) : 0;
  }

  /**
   * Decides on one request. 0: it is admitted; undefined: it is not; any other number: it is the trial of this number,
   * and the caller calls `endTrial` when it is over.
   */
  admit(): number | undefined {
    if (this.#state === 'closed') return 0;
    if (!this.isAdmitting) return undefined;
    this.#trials += 1;
    this.#trial = this.#trials;
    this.#change('half-open');
    return this.#trial;
  }

  /** If the exchanges of the trial said nothing, the next request is another one. */
  endTrial(trial: number): void {
    if (this.#trial === trial) this.#trial = undefined;
  }

  /** The head of a response came. */
  responded(status: number): void {
    if (this.#statuses.size > 0 && this.#statuses.has(status)) this.failed();
    else if (this.#state === 'closed') this.#responses.add(this.#clock.now());
    // A response to a request that was sent before the circuit opened says nothing new.
    else if (this.#state === 'half-open') this.#close();
  }

  /** An exchange failed: no connection, a broken one, or a timeout. */
  failed(): void {
    const now = this.#clock.now();
    if (this.#state === 'half-open') this.#open(now);
    if (this.#state !== 'closed') return;
    this.#failures.add(now);
    const failed = this.#failures.sum(now);
    const all = failed + this.#responses.sum(now);
    if (all >= this.#options.minimum && failed >= all * this.#options.failures) this.#open(now);
  }

  #open(now: number): void {
    this.#openUntil = now + this.#options.open;
    this.#trial = undefined;
    this.#change('open');
  }

  #close(): void {
    this.#responses.clear();
    this.#failures.clear();
    this.#trial = undefined;
    this.#change('closed');
  }

  #change(state: CircuitState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#onChange(state);
  }
}
