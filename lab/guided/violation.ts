import { isDeepStrictEqual } from 'node:util';

/** A property of a target does not hold. The message names it, and does not quote the input. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** @throws Violation */
export function must(holds: boolean, property: string): void {
  if (!holds) throw new Violation(property);
}

/** @throws Violation */
export function mustEqual(one: unknown, other: unknown, property: string): void {
  must(isDeepStrictEqual(one, other), property);
}

/** Characters that no header may hold. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are looked for
export const CONTROL = /[\0-\x08\x0a-\x1f\x7f]/;

/**
 * Returns what a function returns, or the error of this class that it throws. Any other error is thrown on.
 */
export function resultOf<T, E extends Error>(
  work: () => T,
  expected: abstract new (...given: never[]) => E,
): T | E {
  try {
    return work();
  } catch (error) {
    if (error instanceof expected) return error;
    throw error;
  }
}

/** Returns what a function returns, which must not let a library print a warning: it could quote a secret. */
export function withoutWarning<T>(work: () => T): T {
  const { emitWarning } = process;
  let warned = false;
  process.emitWarning = () => {
    warned = true;
  };
  try {
    return work();
  } finally {
    process.emitWarning = emitWarning;
    if (warned) must(false, 'no library prints a warning');
  }
}
