import { timingSafeEqual } from 'node:crypto';
import { inspect } from 'node:util';

const REDACTED = '[secret]';

/**
 * A value that must not leak. Conversion to text (string, template, JSON, `util.inspect`, an error's
 * message) yields `[secret]`, and a copy (spread, structuredClone, postMessage) is empty; only `reveal()`
 * returns the value.
 */
export class Secret {
  // A private field, because a non-enumerable property can still be copied and inspected.
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return REDACTED;
  }

  toJSON(): string {
    return REDACTED;
  }

  [inspect.custom](): string {
    return REDACTED;
  }
}

/** Compares a text that may be forged; how long that takes says nothing of where they differ. */
export function equalInConstantTime(one: string, other: string): boolean {
  const left = Buffer.from(one);
  const right = Buffer.from(other);
  return left.length === right.length && timingSafeEqual(left, right);
}
