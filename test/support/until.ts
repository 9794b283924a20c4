import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 5;
/** A check that takes long, such as a look at the metrics, leaves the processor to what it waits for. */
const PAUSES_PER_CHECK = 4;

/**
 * Asks again until the check holds, for what no event tells; resolves to the milliseconds that it took.
 * @throws Error when it does not hold within `limitMs`
 */
export async function until(check: () => boolean | Promise<boolean>, limitMs = 120_000): Promise<number> {
  const start = performance.now();
  for (;;) {
    const begun = performance.now();
    if (await check()) return performance.now() - start;
    const now = performance.now();
    if (now - start > limitMs) throw new Error(`It did not come true within ${limitMs} ms`);
    await delay(Math.max(POLL_MS, PAUSES_PER_CHECK * (now - begun)));
  }
}
