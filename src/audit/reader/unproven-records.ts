import type { AdminLine } from '../segments/chain-walk.ts';

/**
 * The most admin records, and characters of them, that wait for a signed head. A gateway signs one each second; without
 * the key, somebody could write any number of records under none.
 */
const MAX_RECORDS = 10_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** An admin record and its segment. */
interface PlacedLine extends AdminLine {
  readonly name: string;
}

/** Admin records that no signed head covers yet: nothing of them is to be believed. */
export class UnprovenRecords {
  #records: PlacedLine[] = [];
  #characters = 0;
  #isExceeded = false;

  /** True if there were more at once than a gateway leaves. They were dropped. */
  get isExceeded(): boolean {
    return this.#isExceeded;
  }

  /** Takes the admin records of the next batch; returns those that its head, in that line of the segment, covers. */
  next(admin: readonly AdminLine[], name: string, headLine: number | undefined): readonly PlacedLine[] {
    if (headLine === undefined) {
      this.#add(admin, name);
      return [];
    }
    // A gateway writes no record behind the head of a batch; whoever seals it anew could.
    this.#add(
      admin.filter(({ at }) => at < headLine),
      name,
    );
    const proven = this.#records;
    this.clear();
    this.#add(
      admin.filter(({ at }) => at > headLine),
      name,
    );
    return proven;
  }

  clear(): void {
    this.#records = [];
    this.#characters = 0;
  }

  #add(records: readonly AdminLine[], name: string): void {
    for (const record of records) {
      this.#records.push({ ...record, name });
      this.#characters += record.line.length;
    }
    if (this.#records.length <= MAX_RECORDS && this.#characters <= MAX_CHARACTERS) return;
    this.#isExceeded = true;
    this.clear();
  }
}
