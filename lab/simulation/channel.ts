import type { ProcessPort } from '../../src/base/message-calls.ts';
import { Link, type Network } from './network.ts';
import type { SimulatedProcess } from './world.ts';

/** One end of a connection between a worker and its primary process, in the place of the IPC channel of Node. */
class SimulatedPort implements ProcessPort {
  readonly #messages = new Set<(message: unknown) => void>();
  readonly #closes = new Set<() => void>();
  readonly #link: Link;
  #open = true;
  peer: SimulatedPort | undefined;

  constructor(link: Link) {
    this.#link = link;
  }

  post(message: unknown): boolean {
    const { peer } = this;
    if (!this.#open || peer === undefined) return false;
    // A process drops a message that it cannot read, as one of another version may send.
    if (this.#link.isLossy) return true;
    const copy = structuredClone(message);
    this.#link.send('message', () => {
      for (const listener of peer.#messages) listener(copy);
    });
    return true;
  }

  onMessage(listener: (message: unknown) => void): () => void {
    this.#messages.add(listener);
    return () => this.#messages.delete(listener);
  }

  onClose(listener: () => void): () => void {
    this.#closes.add(listener);
    return () => this.#closes.delete(listener);
  }

  /** The process at the other end has ended. */
  closed(): void {
    this.#open = false;
    for (const listener of [...this.#closes]) listener();
  }
}

/** Connects a worker with its primary process; returns the ends of both. */
export function connectPorts(
  network: Network,
  worker: SimulatedProcess,
  primary: SimulatedProcess,
): { readonly worker: ProcessPort; readonly primary: ProcessPort } {
  const ofWorker = new SimulatedPort(new Link(network, worker, primary));
  const ofPrimary = new SimulatedPort(new Link(network, primary, worker));
  ofWorker.peer = ofPrimary;
  ofPrimary.peer = ofWorker;
  worker.onEnd(() => primary.deliver(1, 'worker gone', () => ofPrimary.closed()));
  return { worker: ofWorker, primary: ofPrimary };
}
