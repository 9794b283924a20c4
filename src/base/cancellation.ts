import type { GatewayError } from './errors.ts';
import { callEach } from './report-error.ts';

/** Work that can be cancelled, such as an exchange, a wait, or another cancellation. */
export interface Cancellable {
  cancel(reason: GatewayError): void;
}

/**
 * Cancels one request, by its client or its deadline. An AbortSignal would work, but an EventTarget for
 * each request costs more than the rest of the gateway's own work.
 */
export class Cancellation implements Cancellable {
  /** The reason of the cancellation, which only `cancel` sets; undefined if the request is not cancelled. */
  reason: GatewayError | undefined;
  /** A request nearly always waits for one thing only, for which a field is enough. */
  #work: Cancellable | undefined;
  #others: Set<Cancellable> | undefined;

  /** Cancels the request and its work. Only the first reason counts. */
  cancel(reason: GatewayError): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    const work = this.#work;
    const others = this.#others;
    if (others === undefined) {
      work?.cancel(reason);
      return;
    }
    if (work !== undefined) others.add(work);
    this.#work = undefined;
    callEach(others, (each) => each.cancel(reason));
  }

  /**
   * Adds work, which is cancelled with the request; at once if that is cancelled already. `remove` it when it is done.
   */
  add(work: Cancellable): void {
    if (this.reason !== undefined) work.cancel(this.reason);
    else if (this.#work === undefined) this.#work = work;
    else this.#others = (this.#others ?? new Set()).add(work);
  }

  /** Does nothing if the work was not added, or was removed. */
  remove(work: Cancellable): void {
    if (this.#work === work) this.#work = undefined;
    else this.#others?.delete(work);
  }
}
