import type { RecentRecord, RecentRecords } from '../audit.ts';

/** Records that are kept for the console. */
const RECENT_KEPT = 500;
/** Records after which none is kept until the console reads again: strings that live long cost CPU time. */
const UNREAD_AT_MOST = 5_000;

/** The last records in memory that does not grow, kept as long as they are read now and then. */
export class RecordRing implements RecentRecords {
  readonly #kept: RecentRecord[] = [];
  #count = 0;
  #unread = 0;

  add(seq: number, at: number, record: string): void {
    if (this.#unread >= UNREAD_AT_MOST) return;
    this.#unread += 1;
    if (this.#unread === UNREAD_AT_MOST) this.#kept.length = 0;
    else this.#kept[this.#count % RECENT_KEPT] = { seq, at, record };
    this.#count += 1;
  }

  since(position: number): { readonly records: readonly RecentRecord[]; readonly position: number } {
    this.#unread = 0;
    const records: RecentRecord[] = [];
    for (let at = Math.max(position, this.#count - RECENT_KEPT); at < this.#count; at += 1) {
      const record = this.#kept[at % RECENT_KEPT];
      if (record !== undefined) records.push(record);
    }
    return { records, position: this.#count };
  }
}
