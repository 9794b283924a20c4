import type { AuditLines } from '../control/snapshot.ts';
import type { AuditLine } from '../control/view.ts';

/** Number of lines that are kept. */
const KEPT = 500;

/** The latest audit lines of several processes, in the order of their arrival. */
export class RecentLines {
  #lines: AuditLine[] = [];
  #count = 0;

  add(lines: readonly AuditLine[]): void {
    this.#count += lines.length;
    this.#lines = [...this.#lines, ...lines].slice(-KEPT);
  }

  /** Returns the lines after this position as far as they are kept, oldest first, and the position after them. */
  since(position: number): AuditLines {
    const missing = Math.max(0, this.#count - position);
    return { lines: missing === 0 ? [] : this.#lines.slice(-missing), position: this.#count };
  }
}
