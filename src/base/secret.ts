import { inspect } from 'node:util';

const REDACTED = '[secret]';

/**
 * A value that must not leak. Everything that turns an object into text (string, template, JSON,
 * `util.inspect`, an error's message) gets `[secret]`, and a copy (spread, structuredClone, postMessage)
 * gets nothing; only `reveal()` gives the value.
 */
export class Secret {
  // A private field, since a property that is only hidden is still copied and inspected.
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
