import { IDEMPOTENT } from '../handshake/attempt-budget.ts';
import type { Message } from '../handshake/exchange.ts';
import type { Behind401, Connection } from './connection.ts';

/** How long connections are taken to end behind a 401 after one did, in milliseconds. */
const CLOSES_MS = 10_000;
/** After this time without a byte, a kept connection may be dead, in milliseconds. */
const SILENCE_MS = 3_000;

/** The open connections to one upstream that carry no request; the one that was used last is the last. */
export class IdleConnections {
  readonly #idle: Connection[] = [];
  readonly #silenceMs: number;
  /** True if the last connection behind a 401 to a body was kept. */
  #keepsForBody = false;
  /** Until when connections are taken to end behind a 401, since one did: a restart of the upstream looks the same. */
  #closesUntil = Number.NEGATIVE_INFINITY;
  /** True if the upstream sends a body with responses to HEAD, so that no answer may follow them. */
  #headHasBody = false;
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
    if (connection.behind401 !== undefined) this.#learn(connection.behind401, now);
    this.#idle.push(connection);
  }

  /** It is closed. */
  remove(connection: Connection, now: number): void {
    // The rest was learned when the connection became free.
    if (connection.behind401 === 'closed') this.#learn('closed', now);
    this.#headHasBody ||= connection.headHadBody;
    this.#takeOut(connection);
  }

  /** That a connection is kept where no body came says nothing of those where one came. */
  #learn(behind401: Behind401, now: number): void {
    this.#closesUntil = behind401 === 'closed' ? now + CLOSES_MS : Number.NEGATIVE_INFINITY;
    if (behind401 !== 'kept') this.#keepsForBody = behind401 === 'kept-for-body';
  }

  /** Does nothing if it is not idle. */
  #takeOut(connection: Connection): void {
    const at = this.#idle.lastIndexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  /** True if the message would go out on the connection with the challenge that it answers. */
  hasOwn(message: Message, now: number): boolean {
    return this.#ownOf(message, now) !== undefined;
  }

  /**
   * Takes one that fits a message: that with the challenge which the message answers, or the one that was used last;
   * closes one that does not fit. `canOpen`: another one may be opened.
   */
  take(message: Message, now: number, canOpen: boolean): Connection | undefined {
    const own = this.#ownOf(message, now);
    if (own === undefined) return this.#takeLast(message, now, canOpen);
    this.#takeOut(own);
    return own;
  }

  /** The connection with the challenge that the message answers; undefined: it goes out on any. */
  #ownOf(message: Message, now: number): Connection | undefined {
    const { request, follows } = message;
    const own = follows && this.#idle.find(({ challenge }) => challenge === follows);
    if (own === undefined || own.isStale(now) || (own.isForAnswer && this.#headHasBody)) return undefined;
    // Refused on another connection, it may have gone to a server that does not know the nonce.
    const { ownRefused = false, ownStale = false } = request.budget ?? {};
    const hasStrayed = ownRefused || (ownStale && now >= this.#closesUntil);
    return hasStrayed || this.#mayCross(own, message, now) ? own : undefined;
  }

  /** True if a request may cross the end of a connection that is being closed behind a 401. */
  #mayCross({ survives401 }: Connection, message: Message, now: number): boolean {
    const { method, body, freshConnection = false } = message;
    const isRepeatable = IDEMPOTENT.has(method) && (body === null || Buffer.isBuffer(body));
    if (now >= this.#closesUntil) return isRepeatable || survives401 || this.#keepsForBody;
    // A request is repeated once.
    return isRepeatable && !freshConnection;
  }

  #takeLast(message: Message, now: number, canOpen: boolean): Connection | undefined {
    const needsFresh = message.freshConnection === true;
    // Once it is known what a refusal means, its challenge may be answered: questions about that leave it alone.
    const leavesChallenged = canOpen && (needsFresh || message.request.client === '');
    let last: Connection | undefined;
    for (let at = this.#idle.length - 1; at >= 0; at -= 1) {
      const idle = this.#idle[at] as Connection;
      if (idle.isStale(now)) {
        idle.close();
      } else if (!idle.isChallenged(now)) {
        last = idle;
        break;
      } else if (!leavesChallenged) {
        last ??= idle;
      }
    }
    if (last === undefined) return undefined;
    this.#takeOut(last);
    const crosses = last.isChallenged(now) && !this.#mayCross(last, message, now);
    if (!(needsFresh && last.wasUsed) && !last.isForAnswer && !crosses) return last;
    last.close();
    return undefined;
  }

  /**
   * Closes those that were idle when a request went out on a kept connection that gets no byte, unless another kept one
   * has carried a response since: something on the way, such as a firewall, may have forgotten them all, and each would
   * take a request with it. The latest such request counts: one that takes long, such as a long poll, says nothing.
   */
  closeSilent(all: Iterable<Connection>, now: number): void {
    let since = Number.NEGATIVE_INFINITY;
    for (const { silentSince = now } of all)
      if (silentSince <= now - this.#silenceMs) since = Math.max(since, silentSince);
    if (this.#keptAt > since) return;
    for (const idle of [...this.#idle]) if (idle.freeSince < since) idle.close();
  }
}
