import { join } from 'node:path';
import { reportDefect } from '../../base/expected-errors.ts';
import type { AuditKeys } from '../keys.ts';
import { ChainWalk } from './chain-walk.ts';
import { type SegmentHeader, segmentName } from './segment.ts';
import { readBlocks } from './segment-reader.ts';

/** The log of a replica, with the keys to check it. */
interface Archive {
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
}

/** The header of the segment with that first record; undefined: no seal of the key covers it. */
export type SealedHeaders = (first: number) => Promise<SegmentHeader | undefined>;

/** Reads each header once: under a seal it does not change. */
export function sealedHeaders(archive: Archive): SealedHeaders {
  const known = new Map<number, SegmentHeader>();
  return async (first) => {
    const header = known.get(first) ?? (await sealedHeader(archive, segmentName(first), first));
    if (header !== undefined) known.set(first, header);
    return header;
  };
}

/** The header of a segment, if a seal of the key covers it. */
export async function sealedHeader(
  { folder, replica, keys }: Archive,
  name: string,
  first: number,
): Promise<SegmentHeader | undefined> {
  const walk = new ChainWalk({ keys: [keys], replica, first });
  try {
    for await (const { bytes, whole } of readBlocks(join(folder, name))) {
      if (!whole || !walk.walk(bytes)) break;
      if (walk.seals > 0) return walk.header;
    }
  } catch (error) {
    reportDefect(error);
    // A segment that cannot be read has no header to trust.
  }
  return walk.seals > 0 ? walk.header : undefined;
}
