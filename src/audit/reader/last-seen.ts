import { join } from 'node:path';
import { headOf, linesOf } from '../line.ts';
import { segmentsToRead } from './newest-first.ts';
import { type SealedBlock, sealedBlocks } from './sealed-blocks.ts';
import type { ReadOptions } from './searched-segments.ts';

export interface LastSeenOptions extends ReadOptions {
  /** Ids of clients, with the names of their API keys as the log has them. */
  readonly clients: ReadonlyMap<string, readonly string[]>;
  /** Records before this time do not count; RFC 3339 in UTC with milliseconds. */
  readonly since: string;
}

/** When a client was last seen: RFC 3339 in UTC with milliseconds; undefined: not found. */
export interface LastSeen {
  readonly time: string | undefined;
  /** By the name of the key. */
  readonly keys: ReadonlyMap<string, string | undefined>;
}

interface LastSeenResult {
  readonly clients: ReadonlyMap<string, LastSeen>;
  /** True: the log begins with its first record and no record is before `since`. */
  readonly isWholeLog: boolean;
}

/**
 * Finds the newest access record of each client and of each of its keys that is under a seal. Segments are read from the
 * newest to the oldest, until those that are left can change nothing. Memory use depends on the number of clients only.
 * @throws Error if a directory cannot be read
 */
export async function findLastSeen(options: LastSeenOptions): Promise<LastSeenResult> {
  const { directory, clients, since, onSkipped } = options;
  const seen = new Seen(clients, since);
  const segments = await segmentsToRead(options, {});
  for (const each of segments) {
    const { replica, segment, to } = each;
    if (to < since) seen.isBefore = true;
    if (to < since || seen.isDecided(to)) onSkipped?.(join(directory, replica, segment.name));
    else for await (const block of sealedBlocks(options, each)) seen.take(block);
  }
  const byFolder = Map.groupBy(segments, ({ replica }) => replica);
  const isFromFirst = [...byFolder.values()].every((those) =>
    those.some(({ segment }) => segment.first === 1),
  );
  return { clients: seen.clients, isWholeLog: isFromFirst && !seen.isBefore };
}

interface SeenKey {
  readonly name: string;
  /** As `textOf` has it. */
  readonly text: string;
  time: string;
}

interface SeenClient {
  time: string;
  readonly keys: readonly SeenKey[];
}

const CLIENT = '"client":"';
const KEY = ',"key":"';
const STATUS = '"status":';

/** The newest times of clients and keys so far; empty: not found. */
class Seen {
  readonly #since: string;
  readonly #clients: ReadonlyMap<string, SeenClient>;
  /** True: the log has records before `since`. */
  isBefore = false;

  constructor(clients: LastSeenOptions['clients'], since: string) {
    this.#since = since;
    const entries = Array.from(clients, ([id, names]): [string, SeenClient] => [
      id,
      { time: '', keys: names.map((name) => ({ name, text: textOf(name), time: '' })) },
    ]);
    this.#clients = new Map(entries);
  }

  get clients(): Map<string, LastSeen> {
    const known = (time: string): string | undefined => time || undefined;
    const entries = Array.from(this.#clients, ([id, { time, keys }]): [string, LastSeen] => [
      id,
      { time: known(time), keys: new Map(keys.map((key) => [key.name, known(key.time)])) },
    ]);
    return new Map(entries);
  }

  /** True if all were found, and none in a record that is older than `to`. */
  isDecided(to: string): boolean {
    for (const { time, keys } of this.#clients.values()) {
      if (time < to || keys.some((key) => key.time < to)) return false;
    }
    return true;
  }

  /** Reads a block from its end, so that few lines are newer than what was found. */
  take({ bytes }: SealedBlock): void {
    for (const [start, end] of [...linesOf(bytes)].reverse()) {
      const time = this.#timeOf(bytes, start);
      if (time === '') continue;
      for (const each of this.#newerThan(time, bytes.toString('latin1', start, end))) each.time = time;
    }
  }

  /** The time of an access record that counts; empty: the line is none. */
  #timeOf(bytes: Buffer, start: number): string {
    const head = headOf(bytes, start);
    if (head === undefined) return '';
    if (head.time < this.#since) this.isBefore = true;
    return head.kind === 'access' && head.time >= this.#since ? head.time : '';
  }

  /** The client and key of the line, as far as they were not seen at that time or later. */
  #newerThan(time: string, line: string): readonly (SeenClient | SeenKey)[] {
    const id = line.indexOf(CLIENT) + CLIENT.length;
    const client = this.#clients.get(line.slice(id, line.indexOf('"', id)));
    if (client === undefined) return NOTHING;
    const isNewer = client.time < time;
    const key = client.keys.some((each) => each.time < time) ? keyOf(client, line) : undefined;
    if (key !== undefined && key.time < time) return isNewer ? [client, key] : [key];
    return isNewer ? [client] : NOTHING;
  }
}

const NOTHING = [] as const;

/** A name with its closing quote, one character for each byte. */
function textOf(name: string): string {
  return Buffer.from(JSON.stringify(name).slice(1)).toString('latin1');
}

function keyOf({ keys }: SeenClient, line: string): SeenKey | undefined {
  const at = line.lastIndexOf(KEY);
  // A parameter of the request can have this name; the status follows it, and precedes the field.
  if (at === -1 || line.indexOf(STATUS, at) !== -1) return undefined;
  return keys.find(({ text }) => line.startsWith(text, at + KEY.length));
}
