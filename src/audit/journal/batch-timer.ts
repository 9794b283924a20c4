/** Turns of the event loop after which a batch goes at the latest. */
const MOST_TURNS = 8;

/** Waits for the end of this turn of the event loop, and, while each turn brings more, for that of the next. */
export class Gathering {
  readonly #count: () => number;
  readonly #onEnd: () => void;
  #underWay = false;

  /** `count`: how many are gathered. */
  constructor(count: () => number, onEnd: () => void) {
    this.#count = count;
    this.#onEnd = onEnd;
  }

  /** Does nothing if it is under way. */
  begin(): void {
    if (this.#underWay) return;
    this.#underWay = true;
    this.#wait(this.#count(), 1);
  }

  #wait(before: number, turn: number): void {
    setImmediate(() => {
      const now = this.#count();
      if (now > before && turn < MOST_TURNS) {
        this.#wait(now, turn + 1);
        return;
      }
      this.#underWay = false;
      this.#onEnd();
    });
  }
}
