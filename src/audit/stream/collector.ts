import { setTimeout as delay } from 'node:timers/promises';
import { isNativeError } from 'node:util/types';
import type { Progress, Reached } from './collection-progress.ts';
import type { RedisStream, StreamRead } from './redis-stream.ts';

/** Pause after a failure of Redis, in milliseconds. */
const RETRY_MS = 250;
/** One of a group takes an entry; the name of this one is always the same, so that it finds what it took. */
const CONSUMER = 'collector';

export interface CollectorOptions {
  readonly stream: RedisStream;
  /** Those of one group share what comes; each group gets everything. */
  readonly group: string;
  readonly progress: Progress;
  /** Takes lines, each with its end, for good: what it took is acknowledged. */
  readonly write: (text: string, reached: ReadonlyMap<string, Reached>) => Promise<void>;
  /** Redis cannot be read, for this reason; undefined: it can again. */
  readonly onState: (reason: string | undefined) => void;
}

/**
 * Collects what comes into the stream until the signal is aborted.
 * @throws whatever `write` does
 */
export async function collect(options: CollectorOptions, signal: AbortSignal): Promise<void> {
  const { stream, group, onState } = options;
  let failing = true;
  let taken = true;
  while (!signal.aborted) {
    let read: StreamRead;
    try {
      // Redis may have come back without the group, too.
      if (failing) await stream.openGroup(group);
      read = await stream.read(group, CONSUMER, taken ? 'taken' : 'new');
    } catch (error) {
      failing = true;
      // Entries may have been on their way when it failed.
      taken = true;
      onState(isNativeError(error) ? error.message : String(error));
      await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
      continue;
    }
    if (failing) onState(undefined);
    failing = false;
    taken = await pass(options, read, taken);
  }
}

/** Gives whether there may be entries that were taken before, and not acknowledged. */
async function pass(
  { stream, group, progress, write }: CollectorOptions,
  { entries, more }: StreamRead,
  taken: boolean,
): Promise<boolean> {
  if (entries.length === 0) return more;
  const text = entries.map((entry) => progress.take(entry)).join('');
  if (text !== '') await write(text, progress.replicas);
  const ids = entries.map(({ id }) => id);
  // Otherwise they come again, and are known.
  await stream.acknowledge(group, ids).catch(() => undefined);
  return more || taken;
}
