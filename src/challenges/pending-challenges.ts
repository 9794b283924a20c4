import type { Cancellation } from '../base/cancellation.ts';
import { type Flight, SingleFlight } from '../base/single-flight.ts';
import type { Nonce } from './nonce.ts';

/** The longest that a request waits for the handshake of another one, in milliseconds. */
const WAIT_MS = 2_000;

/**
 * One handshake, held by the request that pays for it: `offer` the challenge, then `accept` or not,
 * and in the end always `close`.
 */
export class PendingChallenge {
  /** The nonce that this one is to replace; undefined: none. */
  readonly replaces: Nonce | undefined;
  nonce: Nonce | undefined;

  constructor(replaces?: Nonce) {
    this.replaces = replaces;
  }
}

/** Lets one handshake at a time go ahead, and the others wait for its nonce. */
export class PendingChallenges {
  readonly #flights = new SingleFlight<Nonce | PendingChallenge>();
  #flight: Flight<Nonce | PendingChallenge> | undefined;
  /** The handshake that others wait for. */
  #leading: PendingChallenge | undefined;
  /** The one of another process, which the leading one waits for. */
  readonly #elsewhere = new SingleFlight<Nonce>();
  #flightElsewhere: Flight<Nonce> | undefined;

  get busy(): boolean {
    return this.#flights.busy;
  }

  /** Others wait for this handshake from now on, unless they wait for another already. */
  lead(pending: PendingChallenge): void {
    if (this.busy) return;
    this.#leading = pending;
    this.#flight = this.#flights.lead();
  }

  /**
   * The nonce that the leading handshake brings; or a pending challenge to go alone with: when it takes too long,
   * when it ends without a challenge, or when the request is given up.
   */
  async wait(cancellation: Cancellation): Promise<Nonce | PendingChallenge> {
    const entry = await this.#flights.follow(cancellation, WAIT_MS);
    return entry === 'late' ? new PendingChallenge() : entry;
  }

  /** The nonce that another process may bring within `ms`; else the pending challenge, which others here wait for. */
  async waitElsewhere(
    pending: PendingChallenge,
    ms: number,
    cancellation: Cancellation,
  ): Promise<Nonce | PendingChallenge> {
    if (!this.#elsewhere.busy) this.#flightElsewhere = this.#elsewhere.lead();
    const nonce = await this.#elsewhere.follow(cancellation, ms);
    return nonce === 'late' ? pending : nonce;
  }

  /** No other process brings anything that serves here. */
  stopWaiting(): void {
    this.#flightElsewhere?.land('late');
  }

  /** A nonce is there, from the leading handshake or elsewhere: it serves all who wait. */
  serve(nonce: Nonce): void {
    this.#leading = undefined;
    this.#flight?.land(nonce);
    this.#flightElsewhere?.land(nonce);
  }

  /** No common nonce will come: each waiting request obtains its own challenge. */
  dissolve(): void {
    this.#leading = undefined;
    this.#flight?.land('late');
    this.stopWaiting();
  }

  /** The upstream asked for no authentication. */
  unchallenged(pending: PendingChallenge): void {
    if (this.#leading === pending) this.dissolve();
  }

  /** A handshake is over. If it led and brought nothing, the first who waits leads the next one. */
  close(pending: PendingChallenge): void {
    if (this.#leading !== pending) return;
    this.#leading = new PendingChallenge();
    if (this.#flight?.passOn(this.#leading) === true) return;
    this.#leading = undefined;
    this.#flight?.land('late');
  }
}
