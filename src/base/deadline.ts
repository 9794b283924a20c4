/**
 * Does some work with Redis, or gives it up after `ms` milliseconds and aborts the signal: then it rejects
 * with an Error that says so.
 */
export async function within<T>(ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const late = Promise.withResolvers<never>();
  const give = (): void => {
    controller.abort();
    late.reject(new Error(`Redis did not answer within ${ms} ms`));
  };
  let turn: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    // If it was this process that stood still, the answer is there, and only waits to be read.
    turn = setImmediate(give);
  }, ms);
  try {
    return await Promise.race([work(controller.signal), late.promise]);
  } finally {
    clearTimeout(timer);
    clearImmediate(turn);
  }
}
