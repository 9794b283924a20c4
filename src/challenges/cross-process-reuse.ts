import { TrialSchedule } from './trial-schedule.ts';

/** Refused nonces of other processes in a row after which nonces count as bound to their process. */
const ENOUGH = 3;
/** Only what is younger than this share of a life is not refused for its age. */
const EARLY = 0.5;
/** Assumed lifetime while none is known, in milliseconds. */
const SHORT_LIFE_MS = 60_000;

/**
 * Learns whether a nonce serves another process than the one that obtained it. Some upstreams bind it to the
 * address that asked for it (Tomcat does), and replicas may leave from several.
 */
export class CrossProcessReuse {
  readonly #now: () => number;
  readonly #trials = new TrialSchedule();
  #works = true;
  #refused = 0;

  /** `now`: milliseconds on a clock that never goes back. */
  constructor(now: () => number) {
    this.#now = now;
  }

  get works(): boolean {
    return this.#works;
  }

  /** A nonce of another process was accepted here. True: it is news that this works. */
  accepted(): boolean {
    this.#refused = 0;
    if (this.#works) return false;
    this.#set(true);
    return true;
  }

  /** A nonce of another process was refused the first time that it was used here. True: from now on none is. */
  refused(ageMs: number, lifetimeMs = SHORT_LIFE_MS): boolean {
    if (ageMs > EARLY * lifetimeMs) return false;
    this.#refused += 1;
    if (!this.#works) this.#trials.failed(this.#now());
    if (!this.#works || this.#refused < ENOUGH) return false;
    this.#set(false);
    return true;
  }

  /** Takes over the finding of another process. */
  adopt(works: boolean): void {
    if (works === this.#works) return;
    this.#works = works;
    this.#refused = 0;
    if (works) this.#trials.stop();
    else this.#trials.adopted(this.#now());
  }

  /** True once in a while, although it does not work: a nonce of another process is to be tried. */
  takeTrial(): boolean {
    if (this.#works || !this.#trials.isDue(this.#now())) return false;
    this.#trials.begin(this.#now());
    return true;
  }

  /** Forgets everything: the challenge shows that it is another upstream. */
  forget(): void {
    this.#works = true;
    this.#refused = 0;
    this.#trials.forget();
  }

  #set(works: boolean): void {
    this.#works = works;
    this.#refused = 0;
    if (works) this.#trials.stop();
    else this.#trials.learned(this.#now());
  }
}
