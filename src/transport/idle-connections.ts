import { IDEMPOTENT } from '../handshake/attempt-budget.ts';
import type { Message } from '../handshake/exchange.ts';
import type { Connection } from './connection.ts';

/** After this time without a byte, a kept connection may be dead, in milliseconds. */
const SILENCE_MS = 3_000;

/** The open connections to one upstream that carry no request; the one that was used last is the last. */
export class IdleConnections {
  readonly #idle: Connection[] = [];
  readonly #silenceMs: number;
  /** True if a connection has carried another response after a 401. */
  #survives401 = false;
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
    this.#survives401 ||= connection.survives401;
    this.#idle.push(connection);
  }

  /** Does nothing if it is not idle. */
  remove(connection: Connection): void {
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  /**
   * Takes one that fits a message: that with the challenge which the message answers, or the one that was used last;
   * closes one that does not fit. `canOpen`: another one may be opened.
   */
  take(message: Message, now: number, canOpen: boolean): Connection | undefined {
    const { method, body, follows } = message;
    const isRepeatable = IDEMPOTENT.has(method) && (body === null || Buffer.isBuffer(body));
    const crossesEnd = !isRepeatable && !this.#survives401;
    return (
      (follows && this.#takeChallenged(follows, now, crossesEnd)) ??
      this.#takeLast(message.freshConnection === true, now, canOpen, crossesEnd)
    );
  }

  /** `crossesEnd`: a request must not go to an upstream that may be closing the connection behind a 401. */
  #takeChallenged(
    follows: NonNullable<Message['follows']>,
    now: number,
    crossesEnd: boolean,
  ): Connection | undefined {
    const own = this.#idle.find(({ challenge }) => challenge === follows);
    if (own === undefined || own.isStale(now) || (crossesEnd && own.isChallenged(now))) return undefined;
    this.remove(own);
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
