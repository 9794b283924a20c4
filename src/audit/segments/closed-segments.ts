import type { AuditKeys } from '../keys.ts';
import { type Archive, sealedHeader } from './chain-walk.ts';
import { type Segment, segmentsIn } from './segment.ts';

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
