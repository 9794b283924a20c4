import type { Dirent } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { isNativeError } from 'node:util/types';

/** The first line of each file, which says where the chain comes from. */
export interface SegmentHeader {
  readonly replica: string;
  /** Number of the first record. */
  readonly first: number;
  /** `hmac` of the seal before, in the segment before. */
  readonly previous: string;
  /** Id of the key that seals it. */
  readonly key: string;
  /** When it was begun, RFC 3339. */
  readonly opened: string;
}

/** A file of the log: the records of one replica from `first` on. */
export interface Segment {
  readonly name: string;
  readonly first: number;
  readonly compressed: boolean;
}

export const SEGMENT_START = '{"segment":';
const PLAIN = '.jsonl';
const COMPRESSED = '.jsonl.zst';
const INDEX = '.index';
const NAME = /^(\d{12,15})\.jsonl(\.zst)?$/;

export function segmentName(first: number): string {
  return `${String(first).padStart(12, '0')}${PLAIN}`;
}

export function compressedName(plainName: string): string {
  return `${plainName.slice(0, -PLAIN.length)}${COMPRESSED}`;
}

/** The file beside a closed segment that tells when its records are from. */
export function indexName(first: number): string {
  return segmentName(first).replace(PLAIN, INDEX);
}

export function headerLine(header: SegmentHeader): string {
  return `${JSON.stringify({ segment: header })}\n`;
}

/** Undefined: the line is no header. */
export function parseHeader(line: string): SegmentHeader | undefined {
  if (!line.startsWith(SEGMENT_START)) return undefined;
  try {
    const { segment } = JSON.parse(line) as { segment: Partial<SegmentHeader> };
    const { replica, first, previous, key, opened } = segment;
    const texts = [replica, previous, key, opened].every((value) => typeof value === 'string');
    return texts && Number.isSafeInteger(first) ? (segment as SegmentHeader) : undefined;
  } catch {
    return undefined;
  }
}

/** The segments in a replica's folder in their order. Where both forms of one are there, the plain one counts. */
export async function segmentsIn(folder: string): Promise<Segment[]> {
  const names = (await readdir(folder)).sort();
  const found = new Map<number, Segment>();
  for (const name of names) {
    const match = NAME.exec(name);
    if (match === null) continue;
    const first = Number(match[1]);
    // Sorted, the plain name comes first: compression was cut off before the plain file was removed.
    if (!found.has(first)) found.set(first, { name, first, compressed: match[2] !== undefined });
  }
  return [...found.values()].sort((a, b) => a.first - b.first);
}

/** The folders of replicas in the audit directory; none when there is no directory. */
export async function replicasIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error): Dirent[] => {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  });
  return entries
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
}

/** Code of an error of the system, such as ENOENT; empty when it has none. */
export function errorCode(error: unknown): string {
  return isNativeError(error) && 'code' in error && typeof error.code === 'string' ? error.code : '';
}
