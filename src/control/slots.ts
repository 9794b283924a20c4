/** Admits a number of tasks at the same time. */
export class Slots {
  #free: number;

  constructor(most: number) {
    this.#free = most;
  }

  /** Undefined: all slots are taken. Disposing frees the slot. */
  take(): Disposable | undefined {
    if (this.#free === 0) return undefined;
    this.#free -= 1;
    return {
      [Symbol.dispose]: () => {
        this.#free += 1;
      },
    };
  }
}
