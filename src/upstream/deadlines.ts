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
}

/**
 * Cancels requests that take longer than a time that is the same for all. One timer serves them all, since a timer for
 * each request costs more than the rest of its upkeep.
 */
export class Deadlines {
  readonly #ms: number;
  readonly #clock: Clock;
  /** In the order in which they end. */
  readonly #open = new Set<Deadline>();
  #timer: NodeJS.Timeout | undefined;

  /** `ms`: the time that a request may take, in milliseconds. */
  constructor(ms: number, clock: Clock) {
    this.#ms = ms;
    this.#clock = clock;
  }

  /** A request begins; the caller calls `end` when it is over. */
  begin(cancellation: Cancellation, hasBody: boolean): Deadline {
    const deadline = {
      at: this.#clock.now() + this.#ms,
      cancellation,
      body: hasBody ? undefined : NO_BODY,
    };
    this.#open.add(deadline);
    this.#timer ??= this.#wake(this.#ms);
    return deadline;
  }

  end(deadline: Deadline): void {
    this.#open.delete(deadline);
  }

  /** It keeps no process alive: a request does so by its connections. */
  #wake(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#expire(), ms).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    const expired: Deadline[] = [];
    for (const deadline of this.#open) {
      if (deadline.at > now) {
        this.#timer = this.#wake(deadline.at - now);
        break;
      }
      expired.push(deadline);
    }
    callEach(expired, (deadline) => {
      this.#open.delete(deadline);
      deadline.cancellation.cancel(this.#reasonOf(deadline));
    });
  }

  #reasonOf({ body }: Deadline): GatewayError {
    const awaitsClient = body === undefined || (body.kind === 'streamed' && body.progress.awaitsClient);
    return awaitsClient ? clientTooSlow(this.#ms) : upstreamTooSlow(this.#ms);
  }
}
