import type { RecentRecord } from '../audit.ts';

/** Records that are kept for whoever looks on. */
const KEPT = 500;
/** After so many that nobody looked at none is kept: strings that live on cost more than they seem to. */
const UNSEEN_AT_MOST = 5_000;

/** The last records of this process, in memory that does not grow, as long as somebody looks now and then. */
export class RecentRecords {
  readonly #kept: RecentRecord[] = [];
  #count = 0;
  #unseen = 0;

  add(seq: number, at: number, record: string): void {
    if (this.#unseen >= UNSEEN_AT_MOST) return;
    this.#unseen += 1;
    if (this.#unseen === UNSEEN_AT_MOST) this.#kept.length = 0;
    else this.#kept[this.#count % KEPT] = { seq, at, record };
    this.#count += 1;
  }

  /** Those that came after the first so many, as far as they are kept, oldest first; and how many came in all. */
  since(position: number): { readonly records: readonly RecentRecord[]; readonly position: number } {
    this.#unseen = 0;
    const records: RecentRecord[] = [];
    for (let at = Math.max(position, this.#count - KEPT); at < this.#count; at += 1) {
      const record = this.#kept[at % KEPT];
      if (record !== undefined) records.push(record);
    }
    return { records, position: this.#count };
  }
}
