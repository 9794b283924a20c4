import type { GatewayError } from './errors.ts';

/**
 * The way in which one request is given up: by its client, or by its deadline. An AbortSignal would do,
 * but an EventTarget for each request costs more than the rest of the gateway's own work.
 */
export class Cancellation {
  #reason: GatewayError | undefined;
  #stop: ((reason: GatewayError) => void) | undefined;

  /** Why the request was given up; undefined: it was not. */
  get reason(): GatewayError | undefined {
    return this.#reason;
  }

  /** Gives the request up. Only the first reason counts. */
  cancel(reason: GatewayError): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#stop?.(reason);
  }

  /**
   * What is to stop from now on, instead of what was named before: a request waits for one thing at a time.
   * Called at once if the request has been given up already.
   */
  onCancel(stop: ((reason: GatewayError) => void) | undefined): void {
    this.#stop = stop;
    if (this.#reason !== undefined) stop?.(this.#reason);
  }
}
