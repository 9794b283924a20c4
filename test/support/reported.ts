/** The messages of errors that no caller received while something was done. */
export async function reportedDuring(action: () => Promise<void>): Promise<string[]> {
  const { queueMicrotask } = globalThis;
  const messages: string[] = [];
  globalThis.queueMicrotask = (call) =>
    queueMicrotask(() => {
      try {
        call();
      } catch (error) {
        messages.push((error as Error).message);
      }
    });
  try {
    await action();
  } finally {
    globalThis.queueMicrotask = queueMicrotask;
  }
  return messages;
}
