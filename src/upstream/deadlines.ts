import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import { callEach } from '../base/report-error.ts';
import { NO_BODY } from '../handshake/request.ts';
import type { ReceivedBody } from '../transport/request-body.ts';
import { clientTooSlow, upstreamTooSlow } from './errors.ts';

/** The end of the time that one request may take. */
export interface Deadline {
  /** On the clock of the process, in milliseconds. */
  readonly at: number;
  readonly cancellation: Cancellation;
  /** Undefined until it was received, as far as it can be kept. */
  body: ReceivedBody | undefined;
  /** Those that end before and after it; undefined: there is none, or it is over. */
  previous: Deadline | undefined;
  next: Deadline | undefined;
}

/**
 * Cancels requests that take longer than a time that is the same for all. One timer serves them all, since a timer for
 * each request costs more than the rest of its upkeep. They are a linked list in the order in which they end: a Set
 * would keep those that are over from being collected, because its outgrown tables refer to the next one.
 */
export class Deadlines {
  readonly #ms: number;
  readonly #clock: Clock;
  #first: Deadline | undefined;
  #last: Deadline | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** `ms`: the time that a request may take, in milliseconds. */
  constructor(ms: number, clock: Clock) {
    this.#ms = ms;
    this.#clock = clock;
  }

  /** A request begins; the caller calls `end` when it is over. */
  begin(cancellation: Cancellation, hasBody: boolean): Deadline {
    const deadline: Deadline = {
      at: this.#clock.now() + this.#ms,
      cancellation,
      body: hasBody ? undefined : NO_BODY,
      previous: this.#last,
      next: undefined,
    };
    if (this.#last === undefined) this.#first = deadline;
    else this.#last.next = deadline;
    this.#last = deadline;
    this.#timer ??= this.#wake(this.#ms);
    return deadline;
  }

  /** Can be called again. */
  end(deadline: Deadline): void {
    const { previous, next } = deadline;
    if (previous !== undefined) previous.next = next;
    else if (this.#first === deadline) this.#first = next;
    if (next !== undefined) next.previous = previous;
    else if (this.#last === deadline) this.#last = previous;
    deadline.previous = undefined;
    deadline.next = undefined;
  }

  /** It keeps no process alive: a request does so by its connections. */
  #wake(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#expire(), ms).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    const expired: Deadline[] = [];
    for (let first = this.#first; first !== undefined && first.at <= now; first = this.#first) {
      this.end(first);
      expired.push(first);
    }
    if (this.#first !== undefined) this.#timer = this.#wake(this.#first.at - now);
    callEach(expired, (deadline) => deadline.cancellation.cancel(this.#reasonOf(deadline)));
  }

  #reasonOf({ body }: Deadline): GatewayError {
    const awaitsClient = body === undefined || (body.kind === 'streamed' && body.progress.awaitsClient);
    return awaitsClient ? clientTooSlow(this.#ms) : upstreamTooSlow(this.#ms);
  }
}
