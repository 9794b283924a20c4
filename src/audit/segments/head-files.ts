import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { join } from 'node:path';
import { ignoreAbsent } from '../../base/expected-errors.ts';
import { parseJson } from '../../base/json.ts';
import { type Checkpoint, checkpointIn } from '../checkpoint.ts';
import { linesOf, NEWLINE } from '../line.ts';
import { cosignedName, segmentsIn, stampedName } from './segment.ts';
import { NotRegularError, readBlocks } from './segment-reader.ts';

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDWR } = constants;

/**
 * Appends the line of a cosigned or time-stamped head to the file with those of its segment, durably.
 * @throws Error of the file system
 */
export async function appendHead(folder: string, name: string, line: string): Promise<void> {
  const path = join(folder, name);
  await using handle = await open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0o600);
  const found = await handle.stat();
  if (!found.isFile()) throw new NotRegularError(path);
  const { buffer } = await handle.read(Buffer.alloc(1, NEWLINE), 0, 1, Math.max(0, found.size - 1));
  // A line that a crash has torn must not take the next one with it.
  await handle.appendFile(buffer[0] === NEWLINE ? line : `\n${line}`);
  await handle.datasync();
}

/**
 * The lines of a file with heads, as it is at the first call; none if there is no file.
 * @throws Error if the file cannot be read
 */
async function* linesOfFile(path: string): AsyncGenerator<string, void> {
  try {
    // Heads that come later are of records that the reader may have missed.
    let { size: left } = await lstat(path);
    for await (const { bytes } of readBlocks(path)) {
      const known = bytes.subarray(0, left);
      for (const [start, end] of linesOf(known)) yield known.toString('utf8', start, end);
      left -= bytes.length;
      if (left <= 0) return;
    }
  } catch (error) {
    ignoreAbsent(error);
  }
}

/**
 * The heads of a segment that a witness may have cosigned, in their order: nothing of them is to be believed before
 * their signatures are checked. Other lines are left out.
 * @throws Error if the file cannot be read
 */
export async function* cosignedHeads(folder: string, segment: number): AsyncGenerator<Checkpoint, void> {
  for await (const line of linesOfFile(join(folder, cosignedName(segment)))) {
    const checkpoint = checkpointIn(line);
    if (checkpoint !== undefined) yield checkpoint;
  }
}

/** The checkpoints in lines; what is none is left out. */
export function checkpointsIn(lines: string): Checkpoint[] {
  return lines.split('\n').flatMap((line) => checkpointIn(line) ?? []);
}

/** A signed head with a time stamp: nothing of it is to be believed before both are checked. */
export interface StampedHead {
  readonly note: string;
  /** The token of RFC 3161 in DER. */
  readonly token: Buffer;
}

/** The line of a signed head and its token (DER), with its line end. */
export function stampLine(note: string, token: Buffer): string {
  return `${JSON.stringify({ checkpoint: note, timestamp: token.toString('base64') })}\n`;
}

/**
 * The time-stamped heads in a file of a segment in their order, with the numbers of their lines from 1; none if there
 * is no file. Other lines, such as one that a crash has torn, are left out.
 * @throws Error if the file cannot be read
 */
export async function* stampedHeads(
  path: string,
): AsyncGenerator<readonly [line: number, head: StampedHead], void> {
  let line = 0;
  for await (const text of linesOfFile(path)) {
    line += 1;
    const head = stampOf(text);
    if (head !== undefined) yield [line, head];
  }
}

/** When the newest time stamp in the folder was stored, in Unix milliseconds; 0: there is none. */
export async function lastStampedAt(folder: string): Promise<number> {
  for (const { first } of (await segmentsIn(folder)).reverse()) {
    const found = await lstat(join(folder, stampedName(first))).catch(ignoreAbsent);
    if (found !== undefined) return found.mtimeMs;
  }
  return 0;
}

function stampOf(line: string): StampedHead | undefined {
  const { checkpoint, timestamp } = Object(parseJson(line)) as Readonly<Record<string, unknown>>;
  const token = Buffer.from(String(timestamp), 'base64');
  const note = String(checkpoint);
  return stampLine(note, token) === `${line}\n` ? { note, token } : undefined;
}
