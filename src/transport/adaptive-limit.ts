import type { Clock } from '../base/clock.ts';

/** Exchanges that one step measures, at least: until the limit was lowered once, and from then on. */
const SAMPLES = { starting: 20, later: 100 };
/** Responses may take so many times as long as those of an upstream that is not overloaded. */
const TOLERANCE = 2;
/** The most by which one step lowers the limit. */
const LOWEST_GRADIENT = 0.5;
/** The part of a longer latency, while it is tolerated, that the baseline takes over in one step. */
const DRIFT = 0.05;
/** The limit is raised if at least this part of it was in use. */
const USED = 0.8;
/** When the limit has been lowered to this part … */
const CUT = 0.75;
/** … and the latency is still above this part, the number of exchanges is not what makes the upstream slow. */
const HELPED = 0.9;
/** The lowest limit, as a part of the highest. */
const FLOOR = 1 / 16;

/** Measures the latency of one exchange: `start` may be called again, then `end` or `drop` once. */
export class LatencySample {
  readonly #limit: AdaptiveLimit;
  readonly #clock: Clock;
  #begun = 0;

  constructor(limit: AdaptiveLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** The request is sent. */
  start(): void {
    this.#begun = this.#clock.now();
  }

  /** The head of the response came. */
  end(): void {
    this.#limit.add(this.#clock.now() - this.#begun);
  }

  /** The exchange ended without a response. */
  drop(): void {
    this.#limit.add(undefined);
  }
}

/**
 * How many exchanges an upstream serves at a time without becoming slow. The latency of response heads is compared with
 * that of an upstream which is not overloaded, the baseline, as Envoy's adaptive concurrency and Netflix's gradient limit
 * do; with the difference that a lower limit must make responses faster. If it does not, operations that take longer, or
 * the upstream's other clients, are the reason: the limit is restored, and the latency is the new baseline.
 */
export class AdaptiveLimit {
  readonly #max: number;
  readonly #floor: number;
  readonly #clock: Clock;
  /** May have a fraction. */
  #limit: number;
  /** Until the limit is lowered for the first time, it doubles. */
  #isStarting = true;
  /** In milliseconds; undefined: not known yet. */
  #baseline: number | undefined;
  /** Limit and latency before the limit was lowered; undefined: it was not, or this has been judged. */
  #before: { readonly limit: number; readonly latency: number } | undefined;
  /**
   * A step measures the exchanges that begin after the previous one, and waits for all of them: among those that end
   * first, quick operations would count too much.
   */
  #toBegin: number = SAMPLES.starting;
  #underWay = 0;
  #latencies = 0;
  #sum = 0;
  /** The most exchanges at a time since the last step. */
  #peak = 0;

  constructor(max: number, clock: Clock) {
    this.#max = max;
    this.#clock = clock;
    this.#floor = Math.max(1, Math.ceil(max * FLOOR));
    this.#limit = this.#floor;
  }

  get value(): number {
    return Math.floor(this.#limit);
  }

  /** The limit to expect: the highest until the upstream was slow for the first time, so that a start refuses nothing. */
  get expected(): number {
    return this.#isStarting ? this.#max : this.value;
  }

  /** Returns the sample of an exchange that begins as one of `running`; undefined: it is not measured. */
  measure(running: number): LatencySample | undefined {
    if (running > this.#peak) this.#peak = running;
    if (this.#toBegin === 0) return undefined;
    this.#toBegin -= 1;
    this.#underWay += 1;
    return new LatencySample(this, this.#clock);
  }

  /** A sample ended, with its milliseconds; undefined: there was no response. */
  add(latency: number | undefined): void {
    this.#underWay -= 1;
    if (latency !== undefined) {
      this.#latencies += 1;
      this.#sum += latency;
    }
    if (this.#toBegin > 0 || this.#underWay > 0) return;
    if (this.#latencies > 0) this.#step(this.#sum / this.#latencies);
    this.#latencies = 0;
    this.#sum = 0;
    this.#peak = 0;
    this.#toBegin = Math.max(this.#isStarting ? SAMPLES.starting : SAMPLES.later, 2 * this.value);
  }

  #step(latency: number): void {
    if (this.#isInVain(latency)) return;
    // With so few exchanges, it is not their number that makes the upstream slow.
    const isBase = this.#peak <= this.#floor;
    const baseline = isBase ? latency : Math.min(this.#baseline ?? latency, latency);
    const tolerated = TOLERANCE * baseline;
    if (latency <= tolerated) {
      this.#baseline = baseline + (latency - baseline) * DRIFT;
      this.#onTolerated();
    } else {
      this.#baseline = baseline;
      this.#onSlow(latency, Math.max(LOWEST_GRADIENT, tolerated / latency));
    }
  }

  /** Restores a limit that was lowered and made nothing faster. */
  #isInVain(latency: number): boolean {
    const before = this.#before;
    if (before === undefined || this.#limit > CUT * before.limit) return false;
    this.#before = undefined;
    if (latency <= HELPED * before.latency) return false;
    this.#baseline = latency;
    this.#limit = before.limit;
    return true;
  }

  #onTolerated(): void {
    this.#before = undefined;
    if (this.#peak < USED * this.value) return;
    this.#set(this.#limit + (this.#isStarting ? this.#limit : Math.sqrt(this.#limit)));
  }

  /** The square root is the room for a queue at the upstream, without which the limit would only fall. */
  #onSlow(latency: number, gradient: number): void {
    this.#isStarting = false;
    const before = this.#limit;
    this.#set(before * gradient + Math.sqrt(before));
    if (this.#limit < before) this.#before ??= { limit: before, latency };
  }

  #set(limit: number): void {
    this.#limit = Math.min(this.#max, Math.max(this.#floor, limit));
  }
}
