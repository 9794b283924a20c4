import { senderNetwork } from '../base/network.ts';
import { FairQueue, type Queued } from '../transport/fair-queue.ts';

interface Turn extends Queued<Turn> {
  readonly begin: () => void;
}

/**
 * Places of sign-ins that wait for the provider. The next ones wait instead of being refused, and the networks that they
 * come from take turns: otherwise a stranger who starts sign-ins without end would keep everybody else out.
 */
export class SignInTurns {
  #free: number;
  readonly #waiting = new FairQueue<Turn>();

  constructor(places: number) {
    this.#free = places;
  }

  /** Resolves to a place, which disposing frees; undefined: the signal was aborted before. */
  async take(address: string, signal: AbortSignal): Promise<Disposable | undefined> {
    if (this.#free > 0) {
      this.#free -= 1;
      return this.#place();
    }
    if (signal.aborted) return undefined;
    const { promise, resolve } = Promise.withResolvers<Disposable | undefined>();
    const leave = (): void => {
      this.#waiting.remove(turn);
      resolve(undefined);
    };
    const begin = (): void => {
      signal.removeEventListener('abort', leave);
      resolve(this.#place());
    };
    const turn: Turn = { client: senderNetwork(address), previous: undefined, next: undefined, begin };
    signal.addEventListener('abort', leave, { once: true });
    this.#waiting.add(turn);
    return promise;
  }

  #place(): Disposable {
    return {
      [Symbol.dispose]: () => {
        const next = this.#waiting.take();
        if (next === undefined) this.#free += 1;
        else next.begin();
      },
    };
  }
}
