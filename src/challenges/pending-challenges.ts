import type { Cancellation } from '../base/cancellation.ts';
import type { Nonce } from './nonce.ts';

/** The longest that a request waits for the handshake of another one, in milliseconds. */
const WAIT_MS = 2_000;

/**
 * One handshake, held by the request that pays for it: `offer` the challenge, then `accept` or not,
 * and in the end always `close`.
 */
export class PendingChallenge {
  /** The nonce that this one is to take the place of; undefined: of none. */
  readonly replaces: Nonce | undefined;
  nonce: Nonce | undefined;

  constructor(replaces?: Nonce) {
    this.replaces = replaces;
  }
}

type Waiter = (entry: Nonce | PendingChallenge) => void;

/** Lets one handshake at a time go ahead, and the others wait for its nonce. */
export class PendingChallenges {
  readonly #waiters = new Set<Waiter>();
  /** The handshake that others wait for. */
  #leading: PendingChallenge | undefined;
  /** Makes the handshake that waits for another process go ahead. */
  #goOn: (() => void) | undefined;

  get busy(): boolean {
    return this.#leading !== undefined;
  }

  /** Others wait for this handshake from now on, unless they wait for another already. */
  lead(pending: PendingChallenge): void {
    this.#leading ??= pending;
  }

  /**
   * The nonce that the leading handshake brings; or a pending challenge to go alone with: when it takes too long,
   * when it ends without a challenge, or when the request is given up.
   */
  wait(cancellation: Cancellation): Promise<Nonce | PendingChallenge> {
    return new Promise((resolve) => this.#join(resolve, () => new PendingChallenge(), WAIT_MS, cancellation));
  }

  /** The nonce that another process may bring within `ms`; else the pending challenge, which others here wait for. */
  waitElsewhere(
    pending: PendingChallenge,
    ms: number,
    cancellation: Cancellation,
  ): Promise<Nonce | PendingChallenge> {
    return new Promise((resolve) => {
      this.#goOn = this.#join(resolve, () => pending, ms, cancellation);
    });
  }

  /** No other process brings anything that serves here. */
  goOn(): void {
    this.#goOn?.();
  }

  /** Returns what makes this one go alone. */
  #join(resolve: Waiter, alone: () => PendingChallenge, ms: number, cancellation: Cancellation): () => void {
    const waiter: Waiter = (entry) => {
      if (!this.#waiters.delete(waiter)) return;
      clearTimeout(timer);
      cancellation.remove(wait);
      resolve(entry);
    };
    const goAlone = (): void => waiter(alone());
    const timer = setTimeout(goAlone, ms);
    const wait = { cancel: goAlone };
    this.#waiters.add(waiter);
    cancellation.add(wait);
    return goAlone;
  }

  /** A nonce is there, from the leading handshake or elsewhere: it serves all who wait. */
  serve(nonce: Nonce): void {
    this.#leading = undefined;
    for (const waiter of [...this.#waiters]) waiter(nonce);
  }

  /** No common nonce will come: each waiting request obtains its own challenge. */
  dissolve(): void {
    this.#leading = undefined;
    for (const waiter of [...this.#waiters]) waiter(new PendingChallenge());
  }

  /** The upstream asked for no authentication. */
  unchallenged(pending: PendingChallenge): void {
    if (this.#leading === pending) this.dissolve();
  }

  /** A handshake is over. If it led and brought nothing, the first who waits leads the next one. */
  close(pending: PendingChallenge): void {
    if (this.#leading !== pending) return;
    this.#leading = undefined;
    const [first] = this.#waiters;
    if (first === undefined) return;
    this.#leading = new PendingChallenge();
    first(this.#leading);
  }
}
