import type { Dirent } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { isNativeError } from 'node:util/types';
import { z } from 'zod';

/** The highest number of a record: as many digits as names and seals have room for. */
export const MOST_SEQ = 999_999_999_999_999;

const hmac = z.string().regex(/^[\w-]{43}$/);
const seq = z.int().min(1).max(MOST_SEQ);

const header = z.object({
  replica: z.string().max(64),
  /** Number of the first record; the file has it as its name. */
  first: seq,
  /** `hmac` of the seal before, in the segment before; empty: there was none. */
  previous: z.union([hmac, z.literal('')]),
  /** Id of the key that seals it. */
  key: z.string().regex(/^[0-9a-f]{16}$/),
  /** When it was begun, RFC 3339. */
  opened: z.iso.datetime(),
  /** Up to where records were removed for their age when it was begun; left out: none, or by an earlier version. */
  retired: z.object({ last: seq, hmac }).optional(),
});

/** The first line of each file, which says where the chain comes from. It counts once a seal covers it. */
export type SegmentHeader = z.infer<typeof header>;

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
const SET_ASIDE = '.unsealed';
/** As earlier versions called it. */
const SET_ASIDE_BEFORE = '.torn';
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

export function headerLine(segment: SegmentHeader): string {
  return `${JSON.stringify({ segment })}\n`;
}

/** Undefined: the line is no header. */
export function parseHeader(line: string): SegmentHeader | undefined {
  if (!line.startsWith(SEGMENT_START)) return undefined;
  try {
    return header.safeParse((JSON.parse(line) as { segment: unknown }).segment).data;
  } catch {
    return undefined;
  }
}

/**
 * The segments in a replica's folder in their order. Where both forms of one are there, the plain one counts. A number
 * has one spelling: another file cannot stand in for a segment.
 */
export async function segmentsIn(folder: string): Promise<Segment[]> {
  const names = (await readdir(folder)).sort();
  const found = new Map<number, Segment>();
  for (const name of names) {
    const match = NAME.exec(name);
    if (match === null || isStray(name)) continue;
    const first = Number(match[1]);
    // Sorted, the plain name comes first: compression was cut off before the plain file was removed.
    if (!found.has(first)) found.set(first, { name, first, compressed: match[2] !== undefined });
  }
  return [...found.values()].sort((a, b) => a.first - b.first);
}

/** Whether a file in a replica's folder was set aside by the start of a process. */
export function isSetAside(name: string): boolean {
  return name.endsWith(SET_ASIDE) || name.endsWith(SET_ASIDE_BEFORE);
}

/** Whether a file has the form of a segment's name, and is none. */
export function isStray(name: string): boolean {
  const match = NAME.exec(name);
  return match !== null && !name.startsWith(segmentName(Number(match[1])));
}

/** The name under which what follows byte `from` of a segment is set aside. */
export function setAsideName(segment: string, from: number): string {
  return `${segment}.${from}.${Date.now()}${SET_ASIDE}`;
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
