import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 5;

/**
 * Asks again until the check holds, for what no event tells; resolves to the milliseconds that it took.
 * @throws Error when it does not hold within `limitMs`
 */
export async function until(check: () => boolean | Promise<boolean>, limitMs = 120_000): Promise<number> {
  const start = performance.now();
  while (!(await check())) {
    if (performance.now() - start > limitMs) throw new Error(`It did not come true within ${limitMs} ms`);
    await delay(POLL_MS);
  }
  return performance.now() - start;
}
