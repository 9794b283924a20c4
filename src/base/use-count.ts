/** Counts the users of a thing, such as the requests on an upstream, so that its end can wait for them. */
export class UseCount {
  #users = 0;
  #unused: PromiseWithResolvers<void> | undefined;

  /** A use begins; the caller calls `leave` once when it is over. */
  enter(): void {
    this.#users += 1;
  }

  leave(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    this.#unused?.resolve();
    this.#unused = undefined;
  }

  /** Resolves when nothing uses the thing; any number of callers can wait for it. */
  unused(): Promise<void> {
    if (this.#users === 0) return Promise.resolve();
    this.#unused ??= Promise.withResolvers();
    return this.#unused.promise;
  }
}
