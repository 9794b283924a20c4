import { type Archive, sealedHeader } from './chain-walk.ts';
import { type Segment, segmentsIn } from './segment.ts';

/**
 * The segments of a log up to the newest one that begins under a seal of the key; all, if none does. Whatever somebody
 * puts behind that one is no segment, and closes none.
 * @throws Error if the folder cannot be read
 */
export async function begunSegments(archive: Archive): Promise<Segment[]> {
  const segments = await segmentsIn(archive.folder);
  for (let at = segments.length - 1; at >= 0; at -= 1) {
    const segment = segments[at];
    if (segment !== undefined && (await sealedHeader(archive, segment)) !== undefined)
      return segments.slice(0, at + 1);
  }
  return segments;
}

/** The segments that no process writes to any more. @throws Error if the folder cannot be read */
export async function closedSegments(archive: Archive): Promise<Segment[]> {
  return (await begunSegments(archive)).slice(0, -1);
}
