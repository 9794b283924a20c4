import { afterEach } from '@jest/globals';

/** Functions that run after each test of every file (`jest/closing.js`), last first: the ends of what helpers start. */
export const closing: (() => unknown)[] = [];

/** A list of functions that run after each test of this file, last first. */
export function useClosing(): (() => unknown)[] {
  const closing: (() => unknown)[] = [];
  afterEach(() => closeAll(closing));
  return closing;
}

/** Empties a list of such functions: runs each of them even if another one fails. */
export async function closeAll(closing: (() => unknown)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const close of closing.splice(0).reverse()) {
    try {
      await close();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors.length === 1 ? errors[0] : new AggregateError(errors);
}
