/** Functions that run after each test of every file (`jest/closing.js`), last first: the ends of what it started. */
export const closing: (() => unknown)[] = [];

/** Waits for something to start, and closes it when the test ends. */
export async function closedAtEnd<T extends { close(): unknown }>(starting: Promise<T>): Promise<T> {
  const started = await starting;
  closing.push(() => started.close());
  return started;
}
