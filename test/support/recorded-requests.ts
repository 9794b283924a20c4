import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readBlocks } from '../../src/audit/segments/segment-reader.ts';

export interface Recorded {
  /** The statuses of the access records of each request id. */
  readonly requests: ReadonlyMap<string, readonly number[]>;
  /** How often a start set lines without a seal aside. */
  readonly recoveries: number;
  /** Refusals that were counted and not recorded one by one. */
  readonly leftOut: number;
}

/** Reads the segments of an audit log: of all folders in the directory, or of those named. */
export async function readRecorded(directory: string, folders?: readonly string[]): Promise<Recorded> {
  const requests = new Map<string, number[]>();
  let recoveries = 0;
  let leftOut = 0;
  for await (const record of recordsOf(directory, folders ?? (await readdir(directory)))) {
    const { kind, requestId, status, event, count } = record;
    if (event === 'recovered') recoveries += 1;
    if (event === 'refusals-left-out') leftOut += Number(count);
    if (kind !== 'access') continue;
    const statuses = requests.get(String(requestId)) ?? [];
    requests.set(String(requestId), statuses);
    statuses.push(Number(status));
  }
  return { requests, recoveries, leftOut };
}

async function* recordsOf(
  directory: string,
  folders: readonly string[],
): AsyncGenerator<Readonly<Record<string, unknown>>, void> {
  for (const folder of folders) {
    const names = await readdir(join(directory, folder));
    for (const name of names.filter((each) => /\.jsonl(\.zst)?$/.test(each))) {
      for await (const line of readLines(join(directory, folder, name))) yield JSON.parse(line);
    }
  }
}

/** The lines of a segment that are whole, in order, as text; header and seals among them. */
export async function* readLines(file: string): AsyncGenerator<string, void> {
  for await (const { bytes, whole } of readBlocks(file)) {
    if (whole) yield* bytes.toString('utf8').slice(0, -1).split('\n');
  }
}
