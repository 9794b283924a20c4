import type { GatewayError } from './errors.ts';

/**
 * Cancels one request, by its client or its deadline. An AbortSignal would work, but an EventTarget for
 * each request costs more than the rest of the gateway's own work.
 */
export class Cancellation {
  #reason: GatewayError | undefined;
  #stop: ((reason: GatewayError) => void) | undefined;

  /** The reason of the cancellation; undefined if the request is not cancelled. */
  get reason(): GatewayError | undefined {
    return this.#reason;
  }

  /** Cancels the request. Only the first reason counts. */
  cancel(reason: GatewayError): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#stop?.(reason);
  }

  /**
   * Sets the function that stops the current wait, in place of the previous one: a request waits for one
   * thing at a time. It is called at once if the request is cancelled already.
   */
  onCancel(stop: ((reason: GatewayError) => void) | undefined): void {
    this.#stop = stop;
    if (this.#reason !== undefined) stop?.(this.#reason);
  }
}
