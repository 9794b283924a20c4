/** Calls to another store at once. */
const AT_ONCE = 256;

/**
 * Makes the calls that bring the content of one store to another, some at a time. Never rejects, and ends early when
 * the other store confirms none of them.
 */
export async function moveAll(calls: readonly (() => Promise<unknown>)[]): Promise<void> {
  for (let start = 0; start < calls.length; start += AT_ONCE) {
    const outcomes = await Promise.allSettled(calls.slice(start, start + AT_ONCE).map((call) => call()));
    if (outcomes.every(({ status }) => status === 'rejected')) return;
  }
}
