import { IDEMPOTENT } from '../handshake/attempt-budget.ts';
import type { Message } from '../handshake/exchange.ts';
import type { Behind401, Connection } from './connection.ts';

/** After this time without a byte, a kept connection may be dead, in milliseconds. */
const SILENCE_MS = 3_000;

/** The open connections to one upstream that carry no request; the one that was used last is the last. */
export class IdleConnections {
  readonly #idle: Connection[] = [];
  readonly #silenceMs: number;
  /** As the last connection has shown; undefined: none has. */
  #behind401: Behind401 | undefined;
  /** When a connection that had been idle carried a response to its end last. */
  #keptAt = Number.NEGATIVE_INFINITY;

  /** @param responseMs the longest that a response may take */
  constructor(responseMs: number) {
    this.#silenceMs = Math.min(SILENCE_MS, responseMs / 2);
  }

  get size(): number {
    return this.#idle.length;
  }

  /** `isReused`: it was idle before its last exchange. */
  add(connection: Connection, now: number, isReused: boolean): void {
    if (isReused) this.#keptAt = now;
    this.#learnFrom(connection);
    this.#idle.push(connection);
  }

  /** It is closed. */
  remove(connection: Connection): void {
    this.#learnFrom(connection);
    this.#takeOut(connection);
  }

  /** That a connection is kept where no body came says nothing of those where one came. */
  #learnFrom({ behind401 }: Connection): void {
    if (behind401 !== 'kept' || this.#behind401 === 'closed') this.#behind401 = behind401 ?? this.#behind401;
  }

  /** Does nothing if it is not idle. */
  #takeOut(connection: Connection): void {
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  /**
   * Takes one that fits a message: that with the challenge which the message answers, or the one that was used last;
   * closes one that does not fit. `canOpen`: another one may be opened.
   */
  take(message: Message, now: number, canOpen: boolean): Connection | undefined {
    const { method, body, request, freshConnection: needsFresh = false } = message;
    const isRepeatable = IDEMPOTENT.has(method) && (body === null || Buffer.isBuffer(body));
    // A request that cannot be repeated must not cross the end of a connection that is being closed behind a 401.
    const mayCross = isRepeatable || this.#behind401 === 'kept-for-body';
    // Refused on another connection, it may have gone to a server that does not know the nonce.
    const usesOwn = this.#behind401 !== 'closed' && (mayCross || request.budget?.ownRefused === true);
    const own = usesOwn ? this.#takeChallenged(message, now) : undefined;
    return own ?? this.#takeLast(needsFresh, now, canOpen, !mayCross);
  }

  #takeChallenged({ follows }: Message, now: number): Connection | undefined {
    const own = follows && this.#idle.find(({ challenge }) => challenge === follows);
    if (own === undefined || own.isStale(now)) return undefined;
    this.#takeOut(own);
    return own;
  }

  #takeLast(needsFresh: boolean, now: number, canOpen: boolean, crossesEnd: boolean): Connection | undefined {
    for (let at = this.#idle.length - 1; at >= 0; at -= 1) {
      const idle = this.#idle[at] as Connection;
      const isChallenged = idle.isChallenged(now);
      // Its challenge is about to be answered.
      if (isChallenged && canOpen) continue;
      if (at === this.#idle.length - 1) this.#idle.pop();
      else this.#idle.splice(at, 1);
      const isUnfit = (needsFresh && idle.wasUsed) || idle.isForAnswer || (crossesEnd && isChallenged);
      if (!isUnfit && !idle.isStale(now)) return idle;
      idle.close();
      if (isUnfit) return undefined;
    }
    return undefined;
  }

  /**
   * Closes those that were idle when a request went out on a kept connection that gets no byte, unless another kept one
   * has carried a response since: something on the way, such as a firewall, may have forgotten them all, and each would
   * take a request with it. `since`: when the longest such wait began.
   */
  closeSilent(since: number, now: number): void {
    if (since > now - this.#silenceMs || this.#keptAt > since) return;
    for (const idle of [...this.#idle]) if (idle.freeSince < since) idle.close();
  }
}
