import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import { type Linked, LinkedQueue } from '../base/linked-queue.ts';
import { callEach } from '../base/report-error.ts';
import { NO_BODY } from '../handshake/exchange.ts';
import type { ReceivedBody } from '../transport/request-body.ts';
import { clientTooSlow, upstreamTooSlow } from './errors.ts';

/** The end of the time that one request may take. */
export interface Deadline extends Linked<Deadline> {
  /** On the clock of the process, in milliseconds. */
  readonly at: number;
  readonly cancellation: Cancellation;
  /** Undefined until it was received, as far as it can be kept. */
  body: ReceivedBody | undefined;
}

/** Cancels requests that take longer than a time that is the same for all, so that one timer serves them all. */
export class Deadlines {
  readonly #ms: number;
  readonly #clock: Clock;
  /** In the order in which they end. */
  readonly #open = new LinkedQueue<Deadline>();
  #timer: NodeJS.Timeout | undefined;

  /** `ms`: the time that a request may take, in milliseconds. */
  constructor(ms: number, clock: Clock) {
    this.#ms = ms;
    this.#clock = clock;
  }

  /** A request begins now; the caller calls `end` when it is over. */
  begin(cancellation: Cancellation, hasBody: boolean, now: number): Deadline {
    const at = now + this.#ms;
    const body = hasBody ? undefined : NO_BODY;
    const deadline: Deadline = { at, cancellation, body, previous: undefined, next: undefined };
    this.#open.add(deadline);
    this.#timer ??= this.#wake(this.#ms);
    return deadline;
  }

  /** Can be called again. */
  end(deadline: Deadline): void {
    this.#open.remove(deadline);
  }

  /** It keeps no process alive: a request does so by its connections. */
  #wake(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#expire(), ms).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    const expired: Deadline[] = [];
    const open = this.#open;
    for (let first = open.first; first !== undefined && first.at <= now; first = open.first) {
      open.remove(first);
      expired.push(first);
    }
    if (open.first !== undefined) this.#timer = this.#wake(open.first.at - now);
    callEach(expired, (deadline) => deadline.cancellation.cancel(this.#reasonOf(deadline)));
  }

  #reasonOf({ body }: Deadline): GatewayError {
    const awaitsClient = body === undefined || (body.kind === 'streamed' && body.progress.awaitsClient);
    return awaitsClient ? clientTooSlow(this.#ms) : upstreamTooSlow(this.#ms);
  }
}
