import type { Cancellation } from '../base/cancellation.ts';

/** How long a request waits for another's verdict before it goes on by itself, in milliseconds. */
const WAIT_MS = 2_000;

/**
 * How a request comes through the gate: it is the one to find out (`lead`), somebody else found out, or
 * tried in vain or took too long (`alone`).
 */
export type Passage = 'lead' | 'accepted' | 'refused' | 'alone';

type Waiter = (passage: Passage) => void;

/**
 * When it is in doubt whether the upstream still takes a credential, one request finds out and the others
 * wait: hundreds of wrong answers at once would get the gateway's address locked out.
 */
export class VerdictGate {
  readonly #waiters = new Set<Waiter>();
  #led = false;

  /** Leads if nobody does, else waits for the verdict; bounded. Who leads calls `conclude` or `leave`. */
  enter(cancellation: Cancellation): Promise<Passage> {
    if (!this.#led) {
      this.#led = true;
      return Promise.resolve('lead');
    }
    return new Promise((resolve) => {
      const waiter: Waiter = (passage) => {
        clearTimeout(timer);
        cancellation.onCancel(undefined);
        this.#waiters.delete(waiter);
        resolve(passage);
      };
      const goOn = (): void => waiter('alone');
      const timer = setTimeout(goOn, WAIT_MS);
      this.#waiters.add(waiter);
      cancellation.onCancel(goOn);
    });
  }

  /** All who wait go on, with what was found out. */
  conclude(verdict: Exclude<Passage, 'lead'>): void {
    this.#led = false;
    for (const waiter of [...this.#waiters]) waiter(verdict);
  }

  /** Who led found nothing out: the first who waits leads now. */
  leave(): void {
    const [first] = this.#waiters;
    this.#led = first !== undefined;
    first?.('lead');
  }
}
