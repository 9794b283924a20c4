import { setTimeout as delay } from 'node:timers/promises';

/** Milliseconds between two requests of one client, on average. */
const PAUSE_MS = 700;

export interface DemoTraffic {
  /** Resolves when nothing is under way any more. */
  stop(): Promise<void>;
}

/** Clients that ask for these, each by itself and without haste, until they are stopped. */
export function startTraffic(requests: readonly Request[]): DemoTraffic {
  const stopping = new AbortController();
  const clients = requests.map((request) => ask(request, stopping.signal));
  return {
    stop: async () => {
      stopping.abort();
      await Promise.all(clients);
    },
  };
}

async function ask(request: Request, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    // What comes of it is on the console.
    await answerTo(request, signal).catch(() => {});
    await delay(PAUSE_MS * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
  }
}

async function answerTo(request: Request, signal: AbortSignal): Promise<void> {
  const answer = await fetch(request.clone(), { signal });
  await answer.arrayBuffer();
}
