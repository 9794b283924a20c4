import type { Query } from './query.ts';
import type { ReadOptions } from './sealed-blocks.ts';
import { search } from './search.ts';
import { type Usage, UsageTable, type UsageTableOptions } from './usage-table.ts';

interface UsageOptions extends ReadOptions, UsageTableOptions {
  /** Time range and replica. */
  readonly query: Pick<Query, 'since' | 'until' | 'replica'>;
}

/**
 * Counts the requests of the log by group. Only records under a seal count. Memory use depends on the number of groups
 * and days, not on the size of the log.
 * @throws Error if a directory cannot be read
 */
export async function countUsage(options: UsageOptions): Promise<Usage> {
  const table = new UsageTable(options);
  for await (const found of search({ ...options, onCut: () => undefined })) {
    if ('access' in found) table.add(found);
  }
  return table.usage();
}
