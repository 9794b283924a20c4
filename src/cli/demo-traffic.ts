import { setTimeout as delay } from 'node:timers/promises';

/** Average pause between two requests of one client, in milliseconds. */
const PAUSE_MS = 700;

export interface DemoTraffic {
  /** Resolves when no request is pending. */
  stop(): Promise<void>;
}

/** Starts one client for each request, which sends it repeatedly until stopped. */
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
    // The console shows the results and errors.
    await send(request, signal).catch(() => {});
    await delay(PAUSE_MS * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
  }
}

async function send(request: Request, signal: AbortSignal): Promise<void> {
  const response = await fetch(request.clone(), { signal });
  await response.arrayBuffer();
}
