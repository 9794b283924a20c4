import { parseAddress } from '../base/network.ts';
import { FairQueue, type Queued } from '../transport/fair-queue.ts';

/** Bytes of the network that a household or a server has with IPv6. */
const NETWORK_BYTES = 8;

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
    const turn: Turn = { client: networkOf(address), previous: undefined, next: undefined, begin };
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

/** With IPv6, one sender has many addresses. */
function networkOf(address: string): string {
  const parsed = parseAddress(address);
  if (parsed === undefined) return '';
  return (
    parsed.kind() === 'ipv6' ? parsed.toByteArray().slice(0, NETWORK_BYTES) : parsed.toByteArray()
  ).join('.');
}
