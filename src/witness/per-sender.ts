import { senderNetwork } from '../base/network.ts';

/** Counts what is open for each sender, so that one cannot take everything. */
export class PerSender {
  readonly #most: number;
  readonly #open = new Map<string, number>();

  constructor(most: number) {
    this.#most = most;
  }

  /** Counts one more for the sender at this address until the returned function is called; undefined: it has too many. */
  enter(address: string): (() => void) | undefined {
    const sender = senderNetwork(address);
    // Those behind a UNIX socket cannot be told apart.
    if (sender === '') return () => {};
    const open = this.#open.get(sender) ?? 0;
    if (open >= this.#most) return undefined;
    this.#open.set(sender, open + 1);
    return () => {
      const left = (this.#open.get(sender) ?? 0) - 1;
      if (left > 0) this.#open.set(sender, left);
      else this.#open.delete(sender);
    };
  }
}
