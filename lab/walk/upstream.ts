import { once } from 'node:events';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import type { Counts } from '../../src/simulator/exchange.ts';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../test/support/simulator.ts';

/** The deployment of the simulator, and of the gateway. */
export const NAME = 'submissions';

interface Started {
  readonly origin: string;
  readonly ca: string;
  readonly sidePort: number;
}

/** The simulator in a thread of its own: the functions that it enters are not part of a walk. */
export class WalkUpstream {
  readonly origin: string;
  readonly ca: string;
  readonly #thread: Worker;
  /** For counts and changes. */
  readonly #side: string;

  private constructor(thread: Worker, { origin, ca, sidePort }: Started) {
    this.origin = origin;
    this.ca = ca;
    this.#thread = thread;
    this.#side = `http://127.0.0.1:${sidePort}`;
  }

  static async start(): Promise<WalkUpstream> {
    const thread = new Worker(new URL(import.meta.url));
    const [started] = await once(thread, 'message');
    return new WalkUpstream(thread, started);
  }

  /** Changes the behaviour for later requests. */
  async change(change: BehaviourChange): Promise<void> {
    await fetch(`${this.#side}/deployments/${NAME}`, { method: 'PUT', body: JSON.stringify(change) });
  }

  /** Resolves to the number of requests that have come. */
  async requests(): Promise<number> {
    const counts = (await (await fetch(`${this.#side}/counts`)).json()) as Record<typeof NAME, Counts>;
    return counts[NAME].requests;
  }

  async close(): Promise<void> {
    await this.#thread.terminate();
  }
}

if (!isMainThread) {
  const { submissions } = defaultSettings().deployments;
  const { ca, deployments, sidePort } = await startSimulator({ deployments: { submissions } });
  parentPort?.postMessage({ origin: deployments[NAME].origin, ca, sidePort } satisfies Started);
}
