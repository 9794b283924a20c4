import type { Stats } from 'node:fs';
import { lstat, readdir, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { ignoreAbsent, ignoreSystemError } from '../../base/expected-errors.ts';
import { parseJson } from '../../base/json.ts';
import { BrokenLinkError, byProcess, isSelected, LONGEST_NAME, parseProcessName } from '../replica-name.ts';

/** The highest number of a record: as many digits as names and seals have room for. */
export const MOST_SEQ = 999_999_999_999_999;

const hmac = z.string().regex(/^[\w-]{43}$/);
const seq = z.int().min(1).max(MOST_SEQ);

const header = z.object({
  replica: z.string().max(LONGEST_NAME),
  /** Number of the first record, also in the name of the file. */
  first: seq,
  /** `hmac` of the last seal of the previous segment; empty: there is none. */
  previous: z.union([hmac, z.literal('')]),
  /** Id of the key that seals the segment. */
  key: z.string().regex(/^[0-9a-f]{16}$/),
  /** When the segment was begun, RFC 3339. */
  opened: z.iso.datetime(),
  /** The last record that retention had removed; absent: none. */
  retired: z.object({ last: seq, hmac }).optional(),
  /** The tree of the records before the segment, the first of which is `first`; absent: heads are not signed. */
  tree: z.object({ first: seq, roots: z.array(z.string().regex(/^[A-Za-z0-9+/]{43}=$/)).max(50) }).optional(),
});

/** The first line of each segment. It counts once a seal covers it. */
export type SegmentHeader = z.infer<typeof header>;

/** A file of the log, with the records of one process from `first` on. */
export interface Segment {
  readonly name: string;
  readonly first: number;
  readonly compressed: boolean;
}

const SEGMENT_START = '{"segment":';
const PLAIN = '.jsonl';
const COMPRESSED = '.jsonl.zst';
const STAMPED = '.stamped';
const SET_ASIDE = '.unsealed';
const NAME = /^(\d{12,15})\.jsonl(\.zst)?$/;

/** Returns the file name of a segment by the number of its first record. */
export function segmentName(first: number): string {
  return `${String(first).padStart(12, '0')}${PLAIN}`;
}

/** Returns the name that a segment's file has once it is compressed. */
export function compressedName(plainName: string): string {
  return `${plainName.slice(0, -PLAIN.length)}${COMPRESSED}`;
}

/** Makes the name of a file beside a segment from the number of its first record. */
function beside(ending: string): (first: number) => string {
  return (first) => segmentName(first).replace(PLAIN, ending);
}

/** The file with the time range of a closed segment. */
export const indexName = beside('.index');

/** The file with the heads of a segment that a witness cosigned. */
export const cosignedName = beside('.cosigned');

/** The file with the heads of a segment that have a time stamp. */
export const stampedName = beside(STAMPED);

/** True for a file with time-stamped heads. */
export function isStamped(name: string): boolean {
  return /^\d{12,15}$/.test(name.slice(0, -STAMPED.length)) && name.endsWith(STAMPED);
}

/** Returns the first line of a segment, with its line end. */
export function headerLine(segment: SegmentHeader): string {
  return `${JSON.stringify({ segment })}\n`;
}

/** A line as a header; undefined: it is none. */
export function parseHeader(line: string): SegmentHeader | undefined {
  if (!line.startsWith(SEGMENT_START)) return undefined;
  const { segment } = Object(parseJson(line)) as { readonly segment?: unknown };
  return header.safeParse(segment).data;
}

/**
 * The segments in a replica's folder in their order; none if there is no folder. If a segment is there plain and
 * compressed, the plain file counts. A number has one spelling, so another file cannot take the place of a segment.
 */
export async function segmentsIn(folder: string): Promise<Segment[]> {
  const names = ((await readdir(folder).catch(ignoreAbsent)) ?? []).sort();
  const found = new Map<number, Segment>();
  for (const name of names) {
    const match = NAME.exec(name);
    if (match === null || isStray(name)) continue;
    const first = Number(match[1]);
    // The plain name sorts first. Both are there if compression was interrupted before the plain file was removed.
    if (!found.has(first)) found.set(first, { name, first, compressed: match[2] !== undefined });
  }
  return [...found.values()].sort((a, b) => a.first - b.first);
}

/**
 * Returns the size in bytes of each segment of the selected processes, by the path of its file.
 * @throws Error if a directory cannot be read
 */
export async function segmentSizes(directory: string, selected?: string): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (const name of await foldersIn(directory, selected)) {
    const folder = join(directory, name);
    for (const segment of await segmentsIn(folder)) {
      const file = join(folder, segment.name);
      // A running gateway may have removed or compressed it.
      const size = await lstat(file).then(
        (found) => found.size,
        () => 0,
      );
      sizes.set(file, size);
    }
  }
  return sizes;
}

/** True for a file with lines that a start set aside. */
export function isSetAside(name: string): boolean {
  return name.endsWith(SET_ASIDE);
}

/** True for a name that looks like a segment's and is not spelled as the gateway spells it. */
export function isStray(name: string): boolean {
  const match = NAME.exec(name);
  return match !== null && !name.startsWith(segmentName(Number(match[1])));
}

/** A name for the file with the bytes of a segment from `from` on that are set aside. */
export function setAsideName(segment: string, from: number): string {
  return `${segment}.${from}.${Date.now()}${SET_ASIDE}`;
}

/**
 * The names of the folders in the audit directory, each with the log of one process; none if there is no directory. One
 * may be a link to a folder, which its gateway follows, too, if a process can have its name and it is no second name of
 * another folder. `selected`: only those of this replica and its workers, or of this worker. `onBroken`: called for each
 * link that leads to no folder, which is then left out.
 * @throws BrokenLinkError without `onBroken`; Error if the directory cannot be read
 */
export async function foldersIn(
  directory: string,
  selected?: string,
  onBroken: (error: BrokenLinkError) => void = throwError,
): Promise<string[]> {
  const entries = (await readdir(directory, { withFileTypes: true }).catch(ignoreAbsent)) ?? [];
  const found: string[] = [];
  for (const entry of entries.filter(({ name }) => isSelected(selected, name))) {
    if (entry.isDirectory()) found.push(entry.name);
    if (!entry.isSymbolicLink() || !isGiven(entry.name)) continue;
    const path = join(directory, entry.name);
    const target = await stat(path).catch(ignoreSystemError);
    if (target?.isDirectory() !== true) onBroken(new BrokenLinkError(path));
    else if (!(await isSecondName(path, target, selected))) found.push(entry.name);
  }
  return found.sort(byProcess);
}

/** True if there are logs of workers beside that of their replica. A link that leads nowhere counts as one. */
export async function hasWorkerLogs(directory: string, replica: string): Promise<boolean> {
  let isBroken = false;
  const folders = await foldersIn(directory, replica, () => {
    isBroken = true;
  });
  return isBroken || folders.length > 1;
}

/** True for the name of a process by the rules of the configuration: an editor's link begins with a dot. */
function isGiven(name: string): boolean {
  return !name.startsWith('.') && parseProcessName(name) !== undefined;
}

/** True for a link such as `latest -> r1`: the folder is selected, too, under the name that it has itself. */
async function isSecondName(link: string, target: Stats, selected: string | undefined): Promise<boolean> {
  const name = basename(await realpath(link));
  if (name === basename(link) || !isSelected(selected, name)) return false;
  const named = await stat(join(dirname(link), name)).catch(ignoreSystemError);
  return named?.dev === target.dev && named.ino === target.ino;
}

function throwError(error: Error): never {
  throw error;
}
