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
