import { afterEach } from '@jest/globals';

/** A list of functions that run after each test, last first, each of them even if another one fails. */
export function useClosing(): (() => unknown)[] {
  const closing: (() => unknown)[] = [];
  afterEach(async () => {
    const errors: unknown[] = [];
    for (const close of closing.splice(0).reverse()) {
      try {
        await close();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors.length === 1 ? errors[0] : new AggregateError(errors);
  });
  return closing;
}
