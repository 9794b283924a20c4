import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { finding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { ChainWalk, type IntegrityError, type WalkedBatch, walkFile } from './chain-walk.ts';
import { type Segment, type SegmentHeader, segmentsIn } from './segment.ts';

/** The log of a replica, with the keys to check it. */
export interface Archive {
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
}

interface WalkedSegment {
  readonly walk: ChainWalk;
  readonly errors: readonly IntegrityError[];
  /** Why it could not be read to its end, which is the last of its errors; undefined: it was. */
  readonly failure: unknown;
}

/** Walks through a segment with the key of its log. `take`: as `walkFile` has it. */
export async function walkSegment(
  { folder, replica, keys }: Archive,
  { name, first }: Segment,
  take: (batch: WalkedBatch) => unknown = () => undefined,
): Promise<WalkedSegment> {
  const walk = new ChainWalk({ keys: [keys], replica, first });
  const errors: IntegrityError[] = [];
  try {
    await walkFile(walk, join(folder, name), (batch) => {
      errors.push(...batch.errors);
      return take(batch);
    });
    return { walk, errors, failure: undefined };
  } catch (failure) {
    errors.push({ ...finding('segment-unreadable', { reason: messageOf(failure) }), line: walk.lines + 1 });
    return { walk, errors, failure };
  }
}

/** The header of a segment, if its first seal is one of the key. One that cannot be read has no header to trust. */
export async function sealedHeader(archive: Archive, segment: Segment): Promise<SegmentHeader | undefined> {
  let header: SegmentHeader | undefined;
  // A later seal can be right although the header was changed: each is made from the seal before it as that stands.
  const { failure } = await walkSegment(archive, segment, (batch) => {
    if (batch.trust === 'sealed') header = batch.header;
    return true;
  });
  if (failure !== undefined) reportDefect(failure);
  return header;
}

/** The last of these segments of a log that begins under a seal of one of the keys; undefined: none does. */
export async function lastSealed(
  { keys, ...log }: Omit<Archive, 'keys'> & { readonly keys: readonly AuditKeys[] },
  segments: readonly Segment[],
): Promise<Segment | undefined> {
  for (const segment of segments.toReversed()) {
    for (const key of keys) {
      if ((await sealedHeader({ ...log, keys: key }, segment)) !== undefined) return segment;
    }
  }
  return undefined;
}

/**
 * The segments of a log up to the newest one that begins under a seal of the key; all, if none does. Whatever somebody
 * puts behind that one is no segment, and closes none.
 * @throws Error if the folder cannot be read
 */
export async function begunSegments(archive: Archive): Promise<Segment[]> {
  const segments = await segmentsIn(archive.folder);
  const last = await lastSealed({ ...archive, keys: [archive.keys] }, segments);
  return last === undefined ? segments : segments.slice(0, segments.indexOf(last) + 1);
}

/** The segments that no process writes to any more. @throws Error if the folder cannot be read */
export async function closedSegments(archive: Archive): Promise<Segment[]> {
  return (await begunSegments(archive)).slice(0, -1);
}
