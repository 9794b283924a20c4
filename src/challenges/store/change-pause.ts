/** Pause between two announcements of one key, in milliseconds: each costs calls to the store. */
const PAUSE_MS = 50;

/** Passes announcements of changed keys on: the first of a key at once, those of the pause after it as one. */
export class ChangePause {
  readonly #onChange: (key: string) => void;
  /** Keys that were announced lately; true: announced once more when the pause is over. */
  readonly #announced = new Map<string, boolean>();
  #closed = false;

  constructor(onChange: (key: string) => void) {
    this.#onChange = onChange;
  }

  announce(key: string): void {
    if (this.#announced.has(key)) {
      this.#announced.set(key, true);
      return;
    }
    this.#announced.set(key, false);
    setTimeout(() => {
      const again = this.#announced.get(key);
      this.#announced.delete(key);
      if (again === true && !this.#closed) this.announce(key);
    }, PAUSE_MS).unref();
    this.#onChange(key);
  }

  /** Announces nothing any more. */
  close(): void {
    this.#closed = true;
  }
}
