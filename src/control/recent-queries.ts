import { hash } from 'node:crypto';
import { putBounded } from '../base/bounded-map.ts';

/** For so long the same query is not new, in milliseconds. */
const KNOWN_MS = 600_000;
/** Queries that are remembered; the oldest is forgotten. */
const MOST_KNOWN = 1_000;

/** Remembers recent queries, so that a page that repeats its search does not flood the audit log. */
export class RecentQueries {
  readonly #seen = new Map<string, number>();

  /** True if the query was not seen in the last ten minutes. `now`: Unix milliseconds. */
  isNew(query: string, now: number): boolean {
    const key = hash('sha256', query, 'base64url');
    const before = this.#seen.get(key);
    if (before !== undefined && now - before < KNOWN_MS) return false;
    putBounded(this.#seen, key, now, MOST_KNOWN);
    return true;
  }
}
